/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watched directories as a tree: inotify names a directory by its watch number, events need its
 * path, and a directory that is moved takes everything below it along. Pure: no I/O.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

#define WATCH_BUCKETS 1024u
/*
 * Names of a new directory that were told from reading it, so that their events are not told again.
 */
#define WATCH_SEEN_MAX 4096u

struct watch_node {
    int wd;
    char *name;                 /* owned; "" for the root */
    struct watch_node *parent;  /* borrowed; NULL for the root */
    struct watch_node *child;   /* borrowed: first */
    struct watch_node *sibling; /* borrowed: next */
    struct watch_node *chain;   /* borrowed: next in the bucket */
    char **seen;                /* owned */
    size_t n_seen;
    uint64_t seen_until; /* position in the event stream up to which seen counts */
};

struct watch_tree {
    struct watch_node *buckets[WATCH_BUCKETS]; /* owned */
    struct watch_node *root;                   /* borrowed: in buckets */
    size_t n;
};

void watch_tree_done(struct watch_tree *t);
struct watch_node *watch_find(const struct watch_tree *t, int wd);
struct watch_node *watch_child(const struct watch_node *parent, const char *name);
/* parent NULL makes the root. The wd must be new. */
struct watch_node *watch_add(struct watch_tree *t, struct watch_node *parent, const char *name,
                             int wd);
/*
 * Elsewhere in the tree, under another name. A node cannot go below itself: false, and nothing is
 * changed.
 */
bool watch_move(struct watch_node *node, struct watch_node *parent, const char *name);
/* The node and all below it; removed is called for each wd. */
void watch_remove(struct watch_tree *t, struct watch_node *node, void (*removed)(void *arg, int wd),
                  void *arg);
/* Adds the path below the root, with name (may be NULL) at the end. -E2BIG. */
MUST_CHECK int watch_path(const struct watch_node *node, const char *name, struct buf *b);

void watch_seen_add(struct watch_node *node, const char *name);
/* True, once, when the name was told already and the event at this position is from before that. */
bool watch_seen_take(struct watch_node *node, const char *name, uint64_t position);
/* Not to be suppressed any more: it was removed in between. */
void watch_seen_drop(struct watch_node *node, const char *name);
