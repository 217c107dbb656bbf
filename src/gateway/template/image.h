/* SPDX-License-Identifier: Apache-2.0 */

/*
 * OCI images that templates are built from: how they are named, what their registry is told, what their configuration says. Pure;
 * import.h fetches and unpacks them, in the builder's sandbox.
 *
 *     python:3.12                        of Docker Hub
 *     registry.corp/owner/name@sha256:... of another registry
 *     registry.corp:5000/name:tag        the same, with a port
 *     http://registry.corp:5000/name     of one without TLS: only where that is said
 *     oci-archive:HASH[:TAG]             a tar archive of an OCI layout (perhaps compressed), uploaded as files.h has it; the tag
 *                                        chooses among several images
 *
 * Of an image's configuration its environment is taken, as E2B takes it. Who acts, where, and what runs is said by the steps.
 */
#pragma once

#include "gateway/template/recipe.h"

/* The registry of names without one. */
#define IMAGE_HUB \
    "docker" \
    ".io"
#define TEMPLATE_IMAGE_ARCHIVE "oci-archive:"
#define TEMPLATE_IMAGE_HOST_SIZE 256
#define TEMPLATE_IMAGE_CONFIG_MAX \
    (1u << 20) /* of JSON text; registries take 4 MiB, images have a few KiB */
#define TEMPLATE_REGISTRY_TEXT_MAX \
    16384 /* a user or a password; a service account's key takes 3 KiB */

struct template_image {
    char host[TEMPLATE_IMAGE_HOST_SIZE]; /* its registry; "": an archive */
    unsigned port;                       /* 0: none was said */
    bool plain;                          /* no TLS */
    char archive[TEMPLATE_HASH_SIZE];    /* "": of a registry */
    char name[TEMPLATE_IMAGE_MAX + 1];   /* with the registry; of an archive its tag or "" */
};
/* What E2B calls its base image: the template "base". */
bool template_image_is_base(const char *text);
/* -EINVAL with the field "fromImage". */
MUST_CHECK int template_image_parse(const char *text, struct template_image *ret, struct err *e);
/* The network that fetching it needs: what is public (registries send their clients elsewhere for the content), and the registry itself. */
char *template_image_policy(const struct template_image *image);
/* What skopeo reads credentials from: JSON text, for the caller to wipe and free. */
char *template_image_auth(const struct template_image *image, const char *user,
                          const char *password);
/* The environment of an image's configuration, hostile JSON, into *ret, which is empty; what cannot be kept is left out. -EBADMSG. */
MUST_CHECK int template_image_config(const char *text, size_t len, struct template_config *ret,
                                     struct err *e);
