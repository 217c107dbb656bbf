/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/link.h"

#include "base/test.h"

#define NONCE_A "00112233445566778899aabbccddeeff"
#define NONCE_B "ffeeddccbbaa99887766554433221100"

/* Decodes all of data in pieces of the given size; collects payload and event letters. */
struct result {
    uint8_t payload[4096];
    size_t len;
    char events[64];
    size_t n_events;
    char nonce[LINK_NONCE_LEN + 1];
};

static void decode(struct link_decoder *d, const uint8_t *data, size_t len, size_t piece,
                   struct result *ret)
{
    static const char letter[] = "-HARB";

    while (len > 0) {
        uint8_t in[4096];
        size_t n = MIN(MIN(piece, len), sizeof(in));
        uint8_t *p = in;

        memcpy(in, data, n);
        data += n;
        len -= n;
        while (n > 0) {
            size_t used = 0;
            size_t payload = 0;
            enum link_event ev = link_decode(d, p, n, &used, &payload);

            ASSERT(ret->len + payload <= sizeof(ret->payload) && used <= n && payload <= used);
            memcpy(ret->payload + ret->len, p, payload);
            ret->len += payload;
            if (ev != LINK_NONE && ret->n_events + 1 < sizeof(ret->events)) {
                ret->events[ret->n_events++] = letter[ev];
            }
            if (ev == LINK_HELLO || ev == LINK_ACK) {
                memcpy(ret->nonce, d->nonce, sizeof(ret->nonce));
            }
            p += used;
            n -= used;
        }
    }
}

static const size_t pieces[] = {1, 2, 3, 7, 4096};

static void data_survives_whatever_it_is(void)
{
    uint8_t data[512];
    uint8_t wire[LINK_ENCODED_MAX(sizeof(data))];

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = i < 64 ? LINK_FLAG : (uint8_t)(i * 37);
    }
    /* data that looks like a control record */
    link_control(LINK_HELLO, NONCE_A, data + 100);
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        struct link_decoder d = LINK_DECODER_INIT;
        struct result r = {0};

        decode(&d, wire, link_encode(data, sizeof(data), wire), pieces[i], &r);
        CHECK_INT(r.len, sizeof(data));
        CHECK_MEM(r.payload, data, sizeof(data));
        CHECK_STR(r.events, "");
    }
}

static void records_are_found_between_data(void)
{
    uint8_t wire[512];
    size_t n = link_encode("one", 3, wire);

    link_control(LINK_HELLO, NONCE_A, wire + n);
    n += LINK_CONTROL_LEN;
    n += link_encode("two", 3, wire + n);
    link_control(LINK_ACK, NONCE_B, wire + n);
    n += LINK_CONTROL_LEN;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        struct link_decoder d = LINK_DECODER_INIT;
        struct result r = {0};

        decode(&d, wire, n, pieces[i], &r);
        CHECK_STR(r.events, "HA");
        CHECK_STR(r.nonce, NONCE_B);
        CHECK_INT(r.len, 6);
        CHECK_MEM(r.payload, "onetwo", 6);
    }
}

/* Whatever was said before, cut at any byte: the HELLO after it is found. */
static void a_record_after_any_cut_is_found(void)
{
    uint8_t before[256];
    size_t n = link_encode("a\xf9"
                           "b",
                           3, before);

    link_control(LINK_ACK, NONCE_A, before + n);
    n += LINK_CONTROL_LEN;
    n += link_encode("\xf9\xf9\xf9", 3, before + n);
    for (size_t cut = 0; cut <= n; cut++) {
        uint8_t wire[512];
        struct link_decoder d = LINK_DECODER_INIT;
        struct result r = {0};

        memcpy(wire, before, cut);
        link_control(LINK_HELLO, NONCE_B, wire + cut);
        decode(&d, wire, cut + LINK_CONTROL_LEN, 3, &r);
        REQUIRE(r.n_events > 0);
        CHECK_INT(r.events[r.n_events - 1], 'H');
        CHECK_STR(r.nonce, NONCE_B);
    }
}

static void malformed_records_are_broken_not_believed(void)
{
    static const char *const bad[] = {
        "\xf9H2" NONCE_A "\n", /* another version */
        "\xf9H1"
        "00112233445566778899AABBCCDDEEFF"
        "\n", /* not lower case */
        "\xf9H1" NONCE_A "x",
        "\xf9Z1" NONCE_A "\n",
        "\xf9\x01",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct link_decoder d = LINK_DECODER_INIT;
        struct result r = {0};

        decode(&d, (const uint8_t *)bad[i], strlen(bad[i]), 5, &r);
        CHECK_STR(r.events, "B");
    }
}

/* A byte that may be the start of a record is not handed on before the next one has come. */
static void half_a_flag_is_held_back(void)
{
    struct link_decoder d = LINK_DECODER_INIT;
    uint8_t in[] = {'x', LINK_FLAG};
    uint8_t next[] = {0, 'y'};
    size_t used = 0;
    size_t payload = 0;

    CHECK_INT(link_decode(&d, in, sizeof(in), &used, &payload), LINK_NONE);
    CHECK_INT(used, 2);
    CHECK_INT(payload, 1);
    CHECK_INT(link_decode(&d, next, sizeof(next), &used, &payload), LINK_NONE);
    CHECK_INT(payload, 2);
    CHECK_MEM(next, "\xf9y", 2);
}

static void nonces_differ(void)
{
    char a[LINK_NONCE_LEN + 1];
    char b[LINK_NONCE_LEN + 1];

    link_nonce(a);
    link_nonce(b);
    CHECK_INT(strlen(a), LINK_NONCE_LEN);
    CHECK(!str_eq(a, b));
}

TEST_MAIN(T(data_survives_whatever_it_is), T(records_are_found_between_data),
          T(a_record_after_any_cut_is_found), T(malformed_records_are_broken_not_believed),
          T(half_a_flag_is_held_back), T(nonces_differ))
