/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/watch-tree.h"

#include <string.h>

static struct watch_node **bucket_of(struct watch_tree *t, int wd)
{
    return &t->buckets[(unsigned)wd % WATCH_BUCKETS];
}

static void seen_clear(struct watch_node *node)
{
    while (node->n_seen > 0) {
        free(node->seen[--node->n_seen]);
    }
    free(TAKE_PTR(node->seen));
}

static void node_free(struct watch_node *node)
{
    seen_clear(node);
    free(node->name);
    free(node);
}

void watch_tree_done(struct watch_tree *t)
{
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        while (t->buckets[i]) {
            struct watch_node *node = t->buckets[i];

            t->buckets[i] = node->chain;
            node_free(node);
        }
    }
    *t = (struct watch_tree){0};
}

struct watch_node *watch_find(const struct watch_tree *t, int wd)
{
    struct watch_node *node = t->buckets[(unsigned)wd % WATCH_BUCKETS];

    while (node && node->wd != wd) {
        node = node->chain;
    }
    return node;
}

struct watch_node *watch_child(const struct watch_node *parent, const char *name)
{
    struct watch_node *node = parent->child;

    while (node && !str_eq(node->name, name)) {
        node = node->sibling;
    }
    return node;
}

static void link_child(struct watch_node *node, struct watch_node *parent)
{
    node->parent = parent;
    if (parent) {
        node->sibling = parent->child;
        parent->child = node;
    }
}

static void unlink_child(struct watch_node *node)
{
    if (!node->parent) {
        return;
    }
    for (struct watch_node **p = &node->parent->child; *p; p = &(*p)->sibling) {
        if (*p == node) {
            *p = node->sibling;
            break;
        }
    }
    node->parent = NULL;
    node->sibling = NULL;
}

struct watch_node *watch_add(struct watch_tree *t, struct watch_node *parent, const char *name,
                             int wd)
{
    struct watch_node *node = xnew(struct watch_node);

    ASSERT(!watch_find(t, wd) && (parent || !t->root));
    node->wd = wd;
    node->name = xstrdup(name);
    link_child(node, parent);
    if (!parent) {
        t->root = node;
    }
    node->chain = *bucket_of(t, wd);
    *bucket_of(t, wd) = node;
    t->n++;
    return node;
}

bool watch_move(struct watch_node *node, struct watch_node *parent, const char *name)
{
    for (const struct watch_node *up = parent; up; up = up->parent) {
        if (up == node) {
            return false;
        }
    }
    unlink_child(node);
    free(node->name);
    node->name = xstrdup(name);
    link_child(node, parent);
    return true;
}

static void remove_one(struct watch_tree *t, struct watch_node *node)
{
    for (struct watch_node **p = bucket_of(t, node->wd); *p; p = &(*p)->chain) {
        if (*p == node) {
            *p = node->chain;
            break;
        }
    }
    unlink_child(node);
    if (t->root == node) {
        t->root = NULL;
    }
    t->n--;
    node_free(node);
}

void watch_remove(struct watch_tree *t, struct watch_node *node, void (*removed)(void *arg, int wd),
                  void *arg)
{
    struct watch_node *at = node;

    for (;;) { /* leaves first, without recursion: the depth is the workload's choice */
        struct watch_node *up = at->parent;
        bool last = at == node;

        if (at->child) {
            at = at->child;
            continue;
        }
        removed(arg, at->wd);
        remove_one(t, at);
        if (last) {
            return;
        }
        at = up;
    }
}

int watch_path(const struct watch_node *node, const char *name, struct buf *b)
{
    const struct watch_node *chain[2048]; /* a path of PATH_MAX has no more components */
    size_t n = 0;
    int r = 0;

    for (; node->parent; node = node->parent) {
        if (n == ARRAY_SIZE(chain)) {
            return -E2BIG;
        }
        chain[n++] = node;
    }
    while (r == 0 && n-- > 0) {
        r = buf_printf(b, "%s%s", chain[n]->name, n > 0 || name ? "/" : "");
    }
    return r == 0 && name ? buf_add_str(b, name) : r;
}

void watch_seen_add(struct watch_node *node, const char *name)
{
    if (node->n_seen >= WATCH_SEEN_MAX) {
        return; /* told twice then, which is allowed; never not at all */
    }
    if ((node->n_seen & (node->n_seen + 1)) == 0) {
        node->seen = xrealloc(node->seen, (2 * node->n_seen + 2) * sizeof(*node->seen));
    }
    node->seen[node->n_seen++] = xstrdup(name);
}

void watch_seen_drop(struct watch_node *node, const char *name)
{
    for (size_t i = 0; i < node->n_seen; i++) {
        if (str_eq(node->seen[i], name)) {
            free(node->seen[i]);
            node->seen[i] = node->seen[--node->n_seen];
            return;
        }
    }
}

bool watch_seen_take(struct watch_node *node, const char *name, uint64_t position)
{
    size_t before = node->n_seen;

    if (position >= node->seen_until) {
        seen_clear(node);
        return false;
    }
    watch_seen_drop(node, name);
    return node->n_seen < before;
}
