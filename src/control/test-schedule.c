/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "control/schedule.h"

#include <stdio.h>

static const char templates[][TEMPLATE_NAME_SIZE] = {"debian", "python"};

static struct schedule_node node_named(const char *name)
{
    struct schedule_node n = {
        .alive = true,
        .known = true,
        .memory_mib = 16384,
        .memory_free_mib = 8192,
        .pool_free_mib = 100000,
        .cpus = 4,
        .sandboxes_max = 100,
        .accel = "kvm",
        .vmm = "10.0.2",
        .cpu = "EPYC",
        .templates = templates,
        .n_templates = ARRAY_SIZE(templates),
    };

    snprintf(n.name, sizeof(n.name), "%s", name);
    return n;
}

static struct schedule_wish wish_for(const char *template_name)
{
    return (struct schedule_wish){.shape = {1, 256, 4096}, .template_name = template_name};
}

static enum schedule_why why_of(const struct schedule_wish *wish, const struct schedule_node *node)
{
    struct schedule_verdict v;
    size_t fit = schedule(wish, node, 1, &v);

    CHECK_INT(fit, v.why == SCHEDULE_FITS);
    CHECK(v.text[0]);
    return v.why;
}

static void each_reason_has_its_verdict(void)
{
    struct schedule_wish w = wish_for("debian");
    struct schedule_wish no_template = wish_for("other");
    struct schedule_node n = node_named("a");

    CHECK_INT(why_of(&w, &n), SCHEDULE_FITS);
    CHECK_INT(why_of(&no_template, &n), SCHEDULE_NO_TEMPLATE);
    w.avoid = "a";
    CHECK_INT(why_of(&w, &n), SCHEDULE_AVOIDED);
    w.avoid = "";

    n.alive = false;
    CHECK_INT(why_of(&w, &n), SCHEDULE_DEAD);
    n = node_named("a");
    n.wanted = SCHEDULE_CORDONED;
    CHECK_INT(why_of(&w, &n), SCHEDULE_NOT_TAKING);
    n.wanted = SCHEDULE_DRAINING;
    CHECK_INT(why_of(&w, &n), SCHEDULE_NOT_TAKING);
    n = node_named("a");
    n.known = false;
    CHECK_INT(why_of(&w, &n), SCHEDULE_UNKNOWN);
    n = node_named("a");
    n.memory_free_mib = 256 + SCHEDULE_RESERVE_MIB - 1;
    CHECK_INT(why_of(&w, &n), SCHEDULE_NO_MEMORY);
    n.memory_free_mib++;
    CHECK_INT(why_of(&w, &n), SCHEDULE_FITS);
    n.pool_free_mib = 4096 + SCHEDULE_RESERVE_MIB - 1;
    CHECK_INT(why_of(&w, &n), SCHEDULE_NO_POOL);
    n = node_named("a");
    n.vcpus_used = 4 * SCHEDULE_VCPUS_PER_CPU;
    CHECK_INT(why_of(&w, &n), SCHEDULE_NO_CPU);
    n = node_named("a");
    n.sandboxes = n.sandboxes_max;
    CHECK_INT(why_of(&w, &n), SCHEDULE_TOO_MANY);
}

static void stored_memory_decides_first(void)
{
    struct schedule_wish w = wish_for("debian");
    struct schedule_node nodes[] = {node_named("a"), node_named("b")};
    struct schedule_verdict v[2];

    w.stored = true;
    w.accel = "kvm";
    w.vmm = "10.0.3";
    w.cpu = "EPYC";
    w.was_on = "a";
    snprintf(nodes[1].vmm, sizeof(nodes[1].vmm), "10.0.3");
    nodes[1].memory_free_mib = 1000;
    nodes[1].n_templates = 0; /* it travels with what is stored */
    CHECK_INT(schedule(&w, nodes, 2, v), 2);
    CHECK_INT(v[0].node, 1);
    CHECK(!v[0].cold && v[1].cold);
    CHECK(strstr(v[1].text, "afresh") != NULL);

    w.need_memory = true;
    CHECK_INT(schedule(&w, nodes, 2, v), 1);
    CHECK_INT(v[0].node, 1);
    CHECK_INT(v[1].why, SCHEDULE_NO_MEMORY_FIT);

    snprintf(nodes[1].cpu, sizeof(nodes[1].cpu), "Xeon");
    CHECK_INT(schedule(&w, nodes, 2, v), 0);
}

static void warm_machines_and_templates_win(void)
{
    static const struct schedule_warm plain = {"", 1, 256, 2};
    static const struct schedule_warm dressed = {"debian", 1, 256, 1};
    static const struct schedule_warm other = {"python", 1, 256, 1};
    static const struct schedule_warm large = {"debian", 2, 256, 1};
    struct schedule_wish w = wish_for("debian");
    struct schedule_node nodes[] = {node_named("a"), node_named("b"), node_named("c"),
                                    node_named("d"), node_named("e")};
    const struct schedule_warm *const warm[] = {NULL, &other, &plain, &large, &dressed};
    struct schedule_verdict v[5];

    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        nodes[i].warm = warm[i];
        nodes[i].n_warm = warm[i] ? 1 : 0;
    }
    CHECK_INT(schedule(&w, nodes, ARRAY_SIZE(nodes), v), 5);
    CHECK_INT(v[0].node, 4);
    CHECK_INT(v[1].node, 2);
    CHECK_INT(v[1].score - v[2].score, 100);
    CHECK_INT(v[2].node, 0); /* by name among equals */
    CHECK_INT(v[2].score, v[4].score);
}

static void siblings_are_kept_apart(void)
{
    struct schedule_wish w = wish_for("debian");
    struct schedule_node nodes[] = {node_named("a"), node_named("b")};
    struct schedule_verdict v[2];

    nodes[0].siblings = 1;
    nodes[1].memory_free_mib = 1000;
    CHECK_INT(schedule(&w, nodes, 2, v), 2);
    CHECK_INT(v[0].node, 0);
    w.apart = SCHEDULE_APART_PREFERRED;
    CHECK_INT(schedule(&w, nodes, 2, v), 2);
    CHECK_INT(v[0].node, 1);
    w.apart = SCHEDULE_APART_REQUIRED;
    CHECK_INT(schedule(&w, nodes, 2, v), 1);
    CHECK_INT(v[1].why, SCHEDULE_SIBLING);
}

static void no_nodes_no_choice(void)
{
    struct schedule_wish w = wish_for("debian");
    struct schedule_verdict v[1];

    CHECK_INT(schedule(&w, NULL, 0, v), 0);
}

/* --- properties --- */

static uint64_t seed = 88172645463325252ull;

static unsigned pick(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed % n);
}

static struct schedule_node random_node(unsigned i)
{
    static const char *const words[] = {"", "kvm", "tcg"};
    static const struct schedule_warm warm[] = {{"debian", 1, 256, 1}, {"", 2, 512, 1}};
    struct schedule_node n = {
        .wanted = pick(4) ? SCHEDULE_ACTIVE : (enum schedule_wanted)pick(3),
        .alive = pick(8) > 0,
        .known = pick(8) > 0,
        .memory_mib = pick(4) ? 16384 : pick(2),
        .memory_free_mib = pick(3) ? 4096 : pick(1500),
        .pool_free_mib = pick(3) ? 100000 : pick(6000),
        .cpus = pick(4),
        .vcpus_used = pick(60),
        .sandboxes = pick(5),
        .sandboxes_max = 4,
        .templates = templates,
        .n_templates = pick(3),
        .warm = warm,
        .n_warm = pick(3),
        .siblings = pick(3) ? 0 : pick(4),
    };

    snprintf(n.name, sizeof(n.name), "node-%u", i);
    snprintf(n.accel, sizeof(n.accel), "%s", words[pick(3)]);
    snprintf(n.vmm, sizeof(n.vmm), "%s", words[pick(3)]);
    snprintf(n.cpu, sizeof(n.cpu), "%s", words[pick(3)]);
    return n;
}

/* Said in other words than the code's. */
static bool could_run(const struct schedule_wish *w, const struct schedule_node *n)
{
    bool there = false;
    bool differs = (w->accel[0] && strcmp(w->accel, n->accel) != 0) ||
                   (w->vmm[0] && strcmp(w->vmm, n->vmm) != 0) ||
                   (w->cpu[0] && strcmp(w->cpu, n->cpu) != 0);

    for (size_t i = 0; i < n->n_templates; i++) {
        there = there || strcmp(n->templates[i], w->template_name) == 0;
    }
    return strcmp(w->avoid, n->name) != 0 && n->alive && n->known && n->wanted == SCHEDULE_ACTIVE &&
           (there || w->stored) && !(w->stored && w->need_memory && differs) &&
           !(w->apart == SCHEDULE_APART_REQUIRED && n->siblings) &&
           n->sandboxes < n->sandboxes_max &&
           n->vcpus_used + w->shape.vcpus <= n->cpus * SCHEDULE_VCPUS_PER_CPU &&
           n->memory_free_mib >= w->shape.memory_mib + SCHEDULE_RESERVE_MIB &&
           n->pool_free_mib >= w->shape.disk_mib + SCHEDULE_RESERVE_MIB;
}

static void check_verdicts(const struct schedule_wish *w, const struct schedule_node *nodes,
                           size_t n, const struct schedule_verdict *v, size_t fit)
{
    bool told[20] = {false};
    size_t could = 0;

    for (size_t i = 0; i < n; i++) {
        CHECK(v[i].node < n && !told[v[i].node]); /* each node once */
        told[v[i].node] = true;
        CHECK(v[i].text[0] && schedule_why_name(v[i].why)[0]);
        CHECK_INT(v[i].why == SCHEDULE_FITS, i < fit);
        CHECK_INT(v[i].why == SCHEDULE_FITS, could_run(w, &nodes[v[i].node]));
        CHECK(i == 0 || i >= fit || v[i].score <= v[i - 1].score);
        could += could_run(w, &nodes[i]);
    }
    CHECK_INT(fit, could);
}

static void random_nodes_are_judged_completely_and_rightly(void)
{
    static const char *const words[] = {"", "kvm", "tcg"};
    static const char *const names[] = {"debian", "python", "other"};
    struct schedule_node nodes[20];
    struct schedule_verdict v[20];
    struct schedule_verdict again[20];

    for (int round = 0; round < 5000; round++) {
        size_t n = pick(ARRAY_SIZE(nodes));
        struct schedule_wish w = {
            .shape = {1 + pick(2), 256 * (1 + pick(2)), 64 + pick(6000)},
            .template_name = names[pick(3)],
            .stored = pick(2),
            .need_memory = pick(2),
            .accel = words[pick(3)],
            .vmm = words[pick(3)],
            .cpu = words[pick(3)],
            .was_on = pick(2) ? "node-1" : "",
            .avoid = pick(2) ? "node-2" : "",
            .apart = (enum schedule_apart)pick(3),
        };
        size_t fit;

        for (size_t i = 0; i < n; i++) {
            nodes[i] = random_node((unsigned)i);
        }
        fit = schedule(&w, nodes, n, v);
        check_verdicts(&w, nodes, n, v, fit);
        CHECK_INT(schedule(&w, nodes, n, again), fit); /* the same facts, the same choice */
        for (size_t i = 0; i < n; i++) {
            CHECK_INT(again[i].node, v[i].node);
        }
    }
}

TEST_MAIN(T(each_reason_has_its_verdict), T(stored_memory_decides_first),
          T(warm_machines_and_templates_win), T(siblings_are_kept_apart), T(no_nodes_no_choice),
          T(random_nodes_are_judged_completely_and_rightly))
