/* SPDX-License-Identifier: Apache-2.0 */
/* Replays every file of the folders named as arguments through a fuzz target, as a TAP test. */
#include "base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay_file(int dir_fd, const char *name, int number)
{
    cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    cleanup_free uint8_t *data = NULL;
    struct stat st;
    ssize_t n;

    ASSERT(fd >= 0 && fstat(fd, &st) == 0);
    data = xmalloc((size_t)st.st_size); /* exact, so that a sanitizer sees every overrun */
    n = read(fd, data, (size_t)st.st_size);
    ASSERT(n == st.st_size);
    LLVMFuzzerTestOneInput(data, (size_t)n);
    printf("ok %d - %s\n", number, name);
}

int main(int argc, char **argv)
{
    int number = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    printf("ok %d - empty input\n", ++number);
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *entry;

        ASSERT(dir);
        while ((entry = readdir(dir))) {
            if (entry->d_name[0] != '.') {
                replay_file(dirfd(dir), entry->d_name, ++number);
            }
        }
        closedir(dir);
    }
    printf("1..%d\n", number);
    return number > 1 ? 0 : 1; /* a target without a corpus is a mistake */
}
