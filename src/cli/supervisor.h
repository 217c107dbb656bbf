/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process behind `space up`: starts the services in order, waits for each one's health, then keeps them running until it is asked to
 * stop.
 *
 *     STOPPED --start--> RUNNING --ended--> WAITING --backoff over--> RUNNING
 *                           \--stop--> STOPPED (TERM, later KILL)
 *
 * Backoff: SUPERVISOR_BACKOFF_FIRST_MS, doubled with each end that came within SUPERVISOR_STEADY_MS of its start, up to
 * SUPERVISOR_BACKOFF_MAX_MS.
 *
 * One thread, for it forks. Each service runs as its own user, in its own process group (Ctrl-C on our terminal is for us
 * alone), and gets SIGTERM when we die, however we die: so a new supervisor never meets services of an old one. Machines
 * are not our children and live on.
 */
#pragma once

#include "cli/host.h"

#define SUPERVISOR_BACKOFF_FIRST_MS 200u
#define SUPERVISOR_BACKOFF_MAX_MS 30000u
#define SUPERVISOR_STEADY_MS 60000u
#define SUPERVISOR_START_MS 180000u
#define SUPERVISOR_STOP_MS 30000u

struct supervisor;

/* to_files: the services' output goes to log files; else to our own standard error. host is borrowed. */
struct supervisor *supervisor_new(const struct host *host, bool to_files);
/* Stops what runs. */
void supervisor_free(struct supervisor *sup);
DEFINE_CLEANUP(struct supervisor *, supervisor_free);

/* Takes the signals that ask us to stop; before the first start. */
MUST_CHECK int supervisor_take_signals(struct supervisor *sup, struct err *e);
/* Starts one and waits until it answers. -ECANCELED: asked to stop. */
MUST_CHECK int supervisor_start(struct supervisor *sup, enum host_service service, struct err *e);
/* Runs a program to its end as this user (NULL: ours); *ret_output is what it printed (standard output). -ECANCELED as above. */
MUST_CHECK int supervisor_run_once(struct supervisor *sup, const char *const *argv,
                                   const char *user, char **ret_output, struct err *e);
/* Keeps all running until a signal asks us to stop; then stops all. Gives back the signal. */
int supervisor_loop(struct supervisor *sup);
/* Stops all, last started first. */
void supervisor_stop(struct supervisor *sup);
