/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client asks for when it starts a command: JSON to a struct, pure, and the environment that comes
 * of it. Every size has a ceiling here, so that nothing below has to look again: the kernel refuses one
 * string of 128 KiB and more and a whole of a quarter of the stack limit; our ceilings are lower.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

#include <jansson.h>

#define COMMAND_ARGS_MAX 4096
/* One argument or variable, its end included: the kernel's MAX_ARG_STRLEN. */
#define COMMAND_STRING_MAX (128u * 1024)
/* All arguments and variables of the request together. */
#define COMMAND_STRINGS_MAX (1024u * 1024)
#define COMMAND_ENV_MAX 1024
#define COMMAND_PATH_MAX 4096
#define COMMAND_TAG_MAX 128
#define COMMAND_USER_MAX 63
/* A year; what is longer is a mistake. */
#define COMMAND_TIMEOUT_MAX_MS (366ll * 24 * 3600 * 1000)

struct pty_size {
    uint16_t rows;
    uint16_t cols;
};

struct command_spec {
    char id[ID_SIZE];    /* the one that it gets; "": a new one */
    char **argv;         /* owned; ends with NULL, at least one */
    char **env;          /* owned; "K=V", ends with NULL; what the request adds */
    char *cwd;           /* owned; NULL: the user's home */
    char *user;          /* owned; NULL: the template's default */
    char *tag;           /* owned; NULL: none */
    uint64_t timeout_ms; /* 0: none */
    bool stdin_open;
    bool pty;
    struct pty_size size; /* of the terminal */
};

void command_spec_done(struct command_spec *s);
#define cleanup_command_spec CLEANUP(command_spec_done)

/*
 * The body of POST /commands. -EINVAL with the field that is to blame. object is borrowed; *ret is written
 * only on success and is the caller's to command_spec_done.
 */
MUST_CHECK int command_spec_parse(json_t *object, struct command_spec *ret, struct err *e);
/* {"rows","cols"}: the body of POST /commands/{id}/resize and the "pty" of the above. */
MUST_CHECK int pty_size_parse(json_t *object, struct pty_size *ret, struct err *e);

/*
 * base with over put on top (same names replaced, others added), and "TERM" when a terminal has none. The
 * result ends with NULL and is one allocation for the array and one for each string: strings_free.
 */
char **command_env(char *const *base, char *const *over, bool pty);
void strings_free(char **strings);
DEFINE_CLEANUP(char **, strings_free);

/* "TERM", "SIGTERM" or 15 to a number, -EINVAL with field "signal". */
MUST_CHECK int signal_parse(json_t *value, int *ret, struct err *e);
/* "KILL", "RTMIN+3"; ret holds SIGNAL_NAME_SIZE. */
#define SIGNAL_NAME_SIZE 16
void signal_name(int signo, char ret[static SIGNAL_NAME_SIZE]);
