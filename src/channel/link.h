/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lowest layer of the channel: telling a fresh start from data on a byte stream that may be cut anywhere.
 *
 * HTTP/2 needs a stream on which both ends begin together. The channel is not one: what the host writes
 * before the guest opened its port is lost, either end may restart, and a machine restored from a
 * snapshot wakes up in the middle of a conversation that nobody else remembers. So the stream carries
 * two kinds of things that no cut can confuse:
 *
 *     data      any bytes; the byte LINK_FLAG in them is sent as LINK_FLAG 0x00
 *     control   LINK_FLAG type version nonce(32 hex digits) '\n'
 *
 * A control record can therefore be recognised at any point, also when what came before it stopped in
 * the middle of an HTTP/2 frame or of another control record, and no data that a client or the workload
 * sends through the channel can look like one. Everything else after LINK_FLAG means that bytes are
 * missing (LINK_BROKEN). The decoder never passes on a byte whose meaning depends on one that has not come.
 *
 * Start afresh:
 *
 *     host                                  guest
 *       <-- READY (I have no session) ---     when it opened the port, when the host came (back), and when
 *                                             it had to give up a session
 *       --- HELLO nonce ----------------->    drops the session it has: all its streams end; forgets
 *                                             what it still had to send
 *       <-- ACK nonce --------------------    then a new HTTP/2 session begins, the guest being the server
 *
 * The host repeats HELLO, each time with a new random nonce and after a longer pause, until the ACK of the
 * newest one arrives; until then it throws away everything else, so neither stale bytes nor a stale or
 * forged ACK can be taken for the start. It sends nothing else before that ACK. The guest throws away
 * everything until a HELLO. A HELLO at any later time starts afresh again; an ACK or READY inside a session
 * tells the host that the guest has lost it.
 *
 * READY only saves waiting; nothing depends on it. A record of another version is LINK_BROKEN: both ends
 * come from one release, and a base machine of another release is rebuilt, not talked to.
 */
#pragma once

#include "base/util.h"

#define LINK_FLAG 0xf9 /* never occurs in UTF-8, rarely elsewhere: text pays nothing */
#define LINK_VERSION '1'
#define LINK_NONCE_LEN 32
#define LINK_CONTROL_LEN (2 + 1 + LINK_NONCE_LEN + 1)
/* Most bytes that len bytes of data become. */
#define LINK_ENCODED_MAX(len) (2 * (len))

enum link_event {
    LINK_NONE, /* all input used */
    LINK_HELLO,
    LINK_ACK,
    LINK_READY,
    LINK_BROKEN, /* bytes are missing or never made sense */
};

struct link_decoder {
    unsigned state;                 /* private */
    unsigned event;                 /* private: the record being read */
    unsigned n;                     /* private: its bytes so far */
    char nonce[LINK_NONCE_LEN + 1]; /* of the last HELLO, ACK or READY */
};

#define LINK_DECODER_INIT ((struct link_decoder){0})

/*
 * Decodes in place: uses data up to the first event or the end, leaves the payload at the start of data.
 * The payload came before the event. Call again with what is left until *ret_used is everything.
 */
enum link_event link_decode(struct link_decoder *d, uint8_t *data, size_t len, size_t *ret_used,
                            size_t *ret_payload);

/* Writes at most LINK_ENCODED_MAX(len) bytes to out and returns how many. */
size_t link_encode(const void *data, size_t len, void *out);

/* memcpy for bulk data in the guest, quick under emulation too. */
void link_copy(void *dst, const void *src, size_t len);

/* Writes LINK_CONTROL_LEN bytes. nonce is LINK_NONCE_LEN hex digits. */
void link_control(enum link_event type, const char *nonce, void *out);
/* A new random nonce with its NUL. */
void link_nonce(char ret[static LINK_NONCE_LEN + 1]);
