/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/dns.h"

#include <string.h>

#define HEADER_LEN 12u
#define LABEL_MAX 63u
#define WIRE_NAME_MAX 255u
#define TYPE_OPT 41u
#define FLAG_ANSWER 0x8000u
#define FLAG_TRUNCATED 0x0200u
#define FLAG_RECURSE 0x0100u
#define FLAG_RECURSION_THERE 0x0080u
#define OPCODE_MASK 0x7800u
/* A message of 64 KiB has room for a few thousand records; nobody's address needs so many. */
#define RECORDS_MAX 128u
#define TTL_MAX 86400u

struct reader {
    const uint8_t *data;
    size_t len;
    size_t at;
};

static bool get16(struct reader *r, uint16_t *ret)
{
    if (r->len - r->at < 2) {
        return false;
    }
    *ret = (uint16_t)(r->data[r->at] << 8 | r->data[r->at + 1]);
    r->at += 2;
    return true;
}

static bool get32(struct reader *r, uint32_t *ret)
{
    uint16_t high;
    uint16_t low;

    if (!get16(r, &high) || !get16(r, &low)) {
        return false;
    }
    *ret = (uint32_t)high << 16 | low;
    return true;
}

static void put16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static bool plain_byte(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* A name being read: its text, as far as it can be written. */
struct name {
    char text[DNS_NAME_MAX + 1];
    size_t n;
    size_t wire; /* bytes that it has uncompressed */
    bool plain;
};

static bool name_add(struct name *name, const uint8_t *label, size_t len)
{
    name->wire += len + 1;
    if (name->wire >= WIRE_NAME_MAX) {
        return false;
    }
    if (name->n > 0) {
        name->text[name->n++] = '.';
    }
    for (size_t i = 0; i < len; i++) {
        name->plain = name->plain && plain_byte(label[i]);
        name->text[name->n++] = (char)label[i];
    }
    return true;
}

static void name_end(struct name *name)
{
    name->text[name->plain ? name->n : 0] = '\0';
}

/*
 * Reads a name at r. A pointer may only lead to what lies before the name's own start, and each further one
 * before that: so it ends. Without pointers (of a question) one is an error.
 */
static bool get_name(struct reader *r, bool pointers, struct name *ret)
{
    size_t limit = r->at;
    size_t at = r->at;
    bool jumped = false;

    *ret = (struct name){.plain = true};
    for (;;) {
        uint8_t n;

        if (at >= r->len) {
            return false;
        }
        n = r->data[at];
        if (n >= 0xc0) {
            size_t to;

            if (!pointers || r->len - at < 2) {
                return false;
            }
            to = (size_t)(n & 0x3f) << 8 | r->data[at + 1];
            if (to >= limit) {
                return false;
            }
            r->at = jumped ? r->at : at + 2;
            jumped = true;
            limit = at = to;
            continue;
        }
        if (n > LABEL_MAX || r->len - at < (size_t)n + 1) {
            return false;
        }
        at += (size_t)n + 1;
        if (n == 0) {
            r->at = jumped ? r->at : at;
            name_end(ret);
            return true;
        }
        if (!name_add(ret, r->data + at - n, n)) {
            return false;
        }
    }
}

/* ---- a guest's question ---- */

/* The one record that a question may bring along: EDNS. */
static bool get_edns(struct reader *r, struct dns_question *q)
{
    struct name name;
    uint16_t type;
    uint16_t size;
    uint32_t ttl;
    uint16_t len;

    if (!get_name(r, /* pointers */ false, &name) || !get16(r, &type) || !get16(r, &size) ||
        !get32(r, &ttl) || !get16(r, &len) || r->len - r->at < len) {
        return false;
    }
    r->at += len;
    if (type != TYPE_OPT || name.wire != 0 || q->has_edns) {
        return false;
    }
    q->has_edns = true;
    q->udp_max = MIN(MAX((size_t)size, (size_t)DNS_UDP_MIN), (size_t)DNS_UDP_MAX);
    return true;
}

static bool get_question(struct reader *r, struct dns_question *q)
{
    struct name name;
    size_t begin = r->at;

    if (!get_name(r, /* pointers */ false, &name) || !get16(r, &q->type) || !get16(r, &q->class)) {
        return false;
    }
    q->plain = name.plain;
    memcpy(q->name, name.text, sizeof(q->name));
    q->raw = r->data + begin;
    q->raw_len = r->at - begin;
    return true;
}

int dns_parse_question(const uint8_t *data, size_t len, struct dns_question *ret)
{
    struct reader r = {.data = data, .len = len};
    uint16_t flags = 0;
    uint16_t counts[4] = {0};

    *ret = (struct dns_question){.udp_max = DNS_UDP_MIN};
    if (len < HEADER_LEN || !get16(&r, &ret->id) || !get16(&r, &flags) || flags & FLAG_ANSWER) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        if (!get16(&r, &counts[i])) {
            return -EBADMSG;
        }
    }
    ret->recursion = flags & FLAG_RECURSE;
    if (flags & OPCODE_MASK) {
        return DNS_NOTIMP;
    }
    if (counts[0] != 1 || counts[1] != 0 || counts[2] != 0 || counts[3] > 1) {
        return DNS_FORMERR;
    }
    if (!get_question(&r, ret)) {
        return DNS_FORMERR;
    }
    if ((counts[3] == 1 && !get_edns(&r, ret)) || r.at != len) {
        return DNS_FORMERR;
    }
    return 0;
}

size_t dns_print_answer(const struct dns_question *q, enum dns_rcode rcode,
                        const struct dns_addrs *addrs, uint8_t ret[static DNS_UDP_MAX])
{
    const size_t edns_len = q->has_edns ? 11 : 0;
    size_t n_addrs = addrs ? addrs->n : 0;
    size_t len = HEADER_LEN;
    unsigned n = 0;
    unsigned flags = FLAG_ANSWER | FLAG_RECURSION_THERE | (q->recursion ? FLAG_RECURSE : 0) | rcode;

    ASSERT(q->raw_len <= WIRE_NAME_MAX + 4 && q->udp_max >= DNS_UDP_MIN);
    if (q->raw_len > 0) {
        memcpy(ret + len, q->raw, q->raw_len);
    }
    len += q->raw_len;
    for (; n < n_addrs && len + 16 + edns_len <= q->udp_max; n++, len += 16) {
        put16(ret + len, 0xc000 | HEADER_LEN); /* the question's name */
        put16(ret + len + 2, DNS_TYPE_A);
        put16(ret + len + 4, DNS_CLASS_IN);
        put16(ret + len + 6, addrs->ttl_s >> 16);
        put16(ret + len + 8, addrs->ttl_s & 0xffff);
        put16(ret + len + 10, 4);
        memcpy(ret + len + 12, &addrs->addr[n], 4);
    }
    if (q->has_edns) {
        memset(ret + len, 0, edns_len);
        put16(ret + len + 1, TYPE_OPT);
        put16(ret + len + 3, DNS_UDP_MAX);
        len += edns_len;
    }
    put16(ret, q->id);
    put16(ret + 2, flags);
    put16(ret + 4, q->raw_len > 0);
    put16(ret + 6, n);
    put16(ret + 8, 0);
    put16(ret + 10, q->has_edns);
    return len;
}

/* ---- our question to a resolver ---- */

static int put_name(const char *name, uint8_t *out, size_t *ret_len)
{
    size_t len = strlen(name);
    size_t at = 0;

    if (len == 0 || len > DNS_NAME_MAX) {
        return -EINVAL;
    }
    for (const char *label = name; label;) {
        size_t n = strcspn(label, ".");

        if (n == 0 || n > LABEL_MAX) {
            return -EINVAL;
        }
        out[at++] = (uint8_t)n;
        memcpy(out + at, label, n);
        at += n;
        label = label[n] ? label + n + 1 : NULL;
    }
    out[at++] = 0;
    *ret_len = at;
    return 0;
}

int dns_print_ask(uint16_t id, const char *name, uint8_t ret[static DNS_ASK_MAX], size_t *ret_len)
{
    size_t name_len;
    uint8_t *at = ret + HEADER_LEN;
    int r = put_name(name, at, &name_len);

    if (r < 0) {
        return r;
    }
    put16(ret, id);
    put16(ret + 2, FLAG_RECURSE);
    put16(ret + 4, 1);
    put16(ret + 6, 0);
    put16(ret + 8, 0);
    put16(ret + 10, 1);
    at += name_len;
    put16(at, DNS_TYPE_A);
    put16(at + 2, DNS_CLASS_IN);
    memset(at + 4, 0, 11);
    put16(at + 5, TYPE_OPT);
    put16(at + 7, DNS_UDP_MAX);
    *ret_len = (size_t)(at - ret) + 15;
    return 0;
}

/* ---- a resolver's answer ---- */

/* The records that matter, as places in the message. */
struct record {
    size_t name_at;
    uint16_t type;
    uint32_t ttl_s;
    size_t data_at;
};

static bool same_name(const char *a, const char *b)
{
    return strcasecmp(a, b) == 0;
}

static bool get_record(struct reader *r, struct record *ret, bool *ret_matters)
{
    struct name name;
    uint16_t class;
    uint16_t len;

    ret->name_at = r->at;
    if (!get_name(r, /* pointers */ true, &name) || !get16(r, &ret->type) || !get16(r, &class) ||
        !get32(r, &ret->ttl_s) || !get16(r, &len) || r->len - r->at < len) {
        return false;
    }
    ret->data_at = r->at;
    r->at += len;
    *ret_matters = class == DNS_CLASS_IN && name.plain &&
                   ((ret->type == DNS_TYPE_A && len == 4) || ret->type == DNS_TYPE_CNAME);
    return true;
}

/* Where the name's CNAME leads to; false: it has none. */
static bool follow(const struct reader *r, const struct record *records, size_t n, char *name,
                   uint32_t *ttl_s)
{
    for (size_t i = 0; i < n; i++) {
        struct reader at_name = {r->data, r->len, records[i].name_at};
        struct reader at_data = {r->data, r->len, records[i].data_at};
        struct name owner;
        struct name target;

        if (records[i].type == DNS_TYPE_CNAME && get_name(&at_name, true, &owner) &&
            same_name(owner.text, name) && get_name(&at_data, true, &target) && target.plain) {
            memcpy(name, target.text, sizeof(target.text));
            *ttl_s = MIN(*ttl_s, records[i].ttl_s);
            return true;
        }
    }
    return false;
}

static void collect(const struct reader *r, const struct record *records, size_t n,
                    const char *name, struct dns_addrs *ret)
{
    for (size_t i = 0; i < n && ret->n < DNS_ADDRS_MAX; i++) {
        struct reader at_name = {r->data, r->len, records[i].name_at};
        struct name owner;

        if (records[i].type == DNS_TYPE_A && get_name(&at_name, true, &owner) &&
            same_name(owner.text, name)) {
            memcpy(&ret->addr[ret->n++], r->data + records[i].data_at, 4);
            ret->ttl_s = MIN(ret->ttl_s, records[i].ttl_s);
        }
    }
}

static int read_records(struct reader *r, uint16_t n, const char *asked, struct dns_reply *reply)
{
    struct record records[RECORDS_MAX];
    char name[DNS_NAME_MAX + 1];
    size_t n_records = 0;

    for (; n > 0 && n_records < RECORDS_MAX; n--) {
        bool matters = false;

        if (!get_record(r, &records[n_records], &matters)) {
            if (reply->truncated) {
                break; /* cut in the middle: what is whole counts */
            }
            return -EBADMSG;
        }
        n_records += matters;
    }
    memset(name, 0, sizeof(name));
    memcpy(name, asked, strlen(asked));
    reply->addrs.ttl_s = TTL_MAX;
    for (unsigned hop = 0; hop < DNS_HOPS_MAX; hop++) {
        collect(r, records, n_records, name, &reply->addrs);
        if (reply->addrs.n > 0 || !follow(r, records, n_records, name, &reply->addrs.ttl_s)) {
            break;
        }
    }
    return 0;
}

int dns_parse_reply(const uint8_t *data, size_t len, uint16_t id, const char *name,
                    struct dns_reply *ret)
{
    struct reader r = {.data = data, .len = len};
    struct dns_question q;
    struct dns_reply reply = {0};
    uint16_t got_id = 0;
    uint16_t flags = 0;
    uint16_t counts[4] = {0};

    ASSERT(strlen(name) <= DNS_NAME_MAX);
    if (len < HEADER_LEN || !get16(&r, &got_id) || !get16(&r, &flags) || got_id != id ||
        !(flags & FLAG_ANSWER) || flags & OPCODE_MASK) {
        return -EAGAIN;
    }
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        if (!get16(&r, &counts[i])) {
            return -EAGAIN;
        }
    }
    if (counts[0] != 1 || !get_question(&r, &q) || !q.plain || !same_name(q.name, name) ||
        q.type != DNS_TYPE_A || q.class != DNS_CLASS_IN) {
        return -EAGAIN;
    }
    reply.rcode = (enum dns_rcode)(flags & 0xf);
    reply.truncated = flags & FLAG_TRUNCATED;
    if (read_records(&r, counts[1], name, &reply) < 0) {
        return -EBADMSG;
    }
    *ret = reply;
    return 0;
}
