/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals. A command's pty comes from the devpts that the workload itself sees at /dev/pts, so that `tty`
 * and `ps` inside agree; therefore it is made by the forked child, after it has entered the workload, and the
 * child passes the master to the daemon (command-spawn.h). The daemon never resolves a path for it. The slave
 * is opened through the master (TIOCGPTPEER), not by name.
 */
#pragma once

#include "daemon/command-spec.h"

/*
 * In a forked child only, in the workload, before it gives up its rights: a new pair, the slave owned by uid, of
 * this size, in UTF-8 mode. Both are close-on-exec.
 */
MUST_CHECK int pty_open(uid_t uid, struct pty_size size, int *ret_master, int *ret_slave);
/* In a forked child that leads its session: makes slave its controlling terminal and standard streams. */
MUST_CHECK int pty_adopt(int slave);
/* The foreground process group gets SIGWINCH if the size differs. */
MUST_CHECK int pty_resize(int master, struct pty_size size);
/* The byte that means end of file on this terminal now (4, unless the program changed it). */
char pty_eof_byte(int master);
