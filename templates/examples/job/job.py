#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A first agent job: reads orders.csv, sums it up, writes results for the host to collect.

usage: job.py INPUT.csv OUTPUT_DIR
"""
import collections
import csv
import json
import os
import platform
import sys


def main() -> int:
    source, target = sys.argv[1], sys.argv[2]
    totals = collections.Counter()
    count = 0
    with open(source, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            totals[row["city"]] += int(row["quantity"]) * int(row["cents"])
            count += 1
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "totals.csv"), "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["city", "total"])
        for city, cents in sorted(totals.items()):
            out.writerow([city, f"{cents / 100:.2f}"])
    with open(os.path.join(target, "summary.json"), "w", encoding="utf-8") as file:
        json.dump({
            "orders": count,
            "total_cents": sum(totals.values()),
            "best_city": totals.most_common(1)[0][0],
            "kernel": platform.release(),
            "machine": platform.node(),
        }, file, indent=2)
        file.write("\n")
    print(f"{count} orders from {len(totals)} cities, {sum(totals.values()) / 100:.2f} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
