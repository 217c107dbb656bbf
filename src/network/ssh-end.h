/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the network gateway and space-ssh-end, over a SOCK_SEQPACKET socket that is the latter's standard input. One packet begins: what
 * credential_client_ssh_open() gave, "host" and "port" with it, and these descriptors: the guest's socket, the end of a stream that
 * speaks the agent protocol, the host's socket (not with "refused"). Before the agent refuses a signature, a packet says why, as a
 * sentence. One comes back for each channel that has ended, and a last one: {"kind", "status",
 * "refused", "up", "down"}; the numbers of bytes are of all until then.
 */
#pragma once

#define SSH_END_PACKET_MAX 65536u
#define SSH_END_FDS_MAX 3u
#define SSH_END_REPORT_MAX 4096u
#define SSH_END_PROGRAM "space-ssh-end"
