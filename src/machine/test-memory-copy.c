/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "base/test.h"
#include "machine/memory-copy.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 2000
#define BYTES (PAGES * 4096ull)

/* A process that maps a file private, as a machine does, and writes pages when told which. */
struct fake_machine {
    pid_t pid;
    int to_fd;
    int from_fd;
    int out_fd;
    struct memory_copy_files files;
    uint64_t inode; /* of the base file */
};

static uint8_t base_byte(size_t page)
{
    return (uint8_t)(page * 7 + 1);
}

static void make_base(int fd)
{
    uint8_t page[4096];

    for (size_t i = 0; i < PAGES; i++) {
        memset(page, base_byte(i), sizeof(page));
        ASSERT(write(fd, page, sizeof(page)) == (ssize_t)sizeof(page));
    }
}

static NORETURN void run_machine(int base_fd, int in_fd, int answer_fd)
{
    uint8_t *ram = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, base_fd, 0);
    uint32_t pages[2]; /* first, count; bytes become the first's number */

    ASSERT(ram != MAP_FAILED && write(answer_fd, "r", 1) == 1);
    while (read(in_fd, pages, sizeof(pages)) == (ssize_t)sizeof(pages)) {
        for (uint32_t i = pages[0]; i < pages[0] + pages[1]; i++) {
            ram[i * 4096 + 5] = 0xee;
            ram[i * 4096 + 9] = (uint8_t)pages[1];
        }
        ASSERT(write(answer_fd, "d", 1) == 1);
    }
    _exit(0);
}

static int open_proc(pid_t pid, const char *name, int flags)
{
    cleanup_free char *path = xasprintf("/proc/%d/%s", (int)pid, name);

    return fs_open(path, flags, 0);
}

static void write_pages(struct fake_machine *m, uint32_t first, uint32_t count)
{
    uint32_t pages[2] = {first, count};
    char done;

    ASSERT(write(m->to_fd, pages, sizeof(pages)) == (ssize_t)sizeof(pages) &&
           read(m->from_fd, &done, 1) == 1);
}

static bool start_machine(struct fake_machine *m, bool soft_dirty)
{
    char dir[] = "/tmp/space-memory-XXXXXX";
    int to[2];
    int from[2];
    struct stat st;
    char ready;

    ASSERT(mkdtemp(dir) && pipe(to) == 0 && pipe(from) == 0);
    cleanup_free char *path = xasprintf("%s/memory", dir);
    cleanup_close int base_fd = fs_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    make_base(base_fd);
    m->out_fd = memfd_create("out", MFD_CLOEXEC);
    make_base(m->out_fd);
    m->pid = fork();
    if (m->pid == 0) {
        close(to[1]);
        close(from[0]);
        run_machine(base_fd, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    m->to_fd = to[1];
    m->from_fd = from[0];
    ASSERT(read(m->from_fd, &ready, 1) == 1);
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, dir)); /* the mapping stays */
    ASSERT(fstat(base_fd, &st) == 0);
    m->files =
        (struct memory_copy_files){.mem_fd = open_proc(m->pid, "mem", O_RDONLY),
                                   .pagemap_fd = open_proc(m->pid, "pagemap", O_RDONLY),
                                   .maps_fd = FD_NONE,
                                   .clear_refs_fd = open_proc(m->pid, "clear_refs", O_WRONLY),
                                   .out_fd = m->out_fd,
                                   .pages_fd = FD_NONE,
                                   .soft_dirty = soft_dirty,
                                   .ram_inode = st.st_ino};
    m->inode = st.st_ino;
    m->files.maps_fd = open_proc(m->pid, "maps", O_RDONLY);
    return true;
}

static void end_machine(struct fake_machine *m)
{
    kill(m->pid, SIGKILL);
    waitpid(m->pid, NULL, 0);
    close(m->to_fd);
    close(m->from_fd);
    close(m->out_fd);
    close(m->files.mem_fd);
    close(m->files.pagemap_fd);
    close(m->files.maps_fd);
    close(m->files.clear_refs_fd);
}

static size_t wrong_pages(const struct fake_machine *m)
{
    cleanup_free uint8_t *got = xmalloc(BYTES);
    cleanup_free uint8_t *want = xmalloc(BYTES);
    size_t n = 0;
    cleanup_free char *line = NULL;
    FILE *maps = fdopen(dup(m->files.maps_fd), "r");
    size_t cap = 0;
    unsigned long start = 0;

    ASSERT(maps && fseek(maps, 0, SEEK_SET) == 0);
    while (start == 0 && getline(&line, &cap, maps) > 0) {
        unsigned long inode = 0;

        if (sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == m->inode) {
            start = strtoul(line, NULL, 16);
        }
    }
    fclose(maps);
    ASSERT(pread(m->files.mem_fd, want, BYTES, (off_t)start) == (ssize_t)BYTES);
    ASSERT(pread(m->out_fd, got, BYTES, 0) == (ssize_t)BYTES);
    for (size_t i = 0; i < PAGES; i++) {
        n += memcmp(got + i * 4096, want + i * 4096, 4096) != 0;
    }
    return n;
}

static void check_rounds(bool soft_dirty)
{
    struct fake_machine m = {0};
    struct memory_copy *copy = NULL;
    struct memory_copy_stats stats;
    unsigned threads = 0;

    REQUIRE(start_machine(&m, soft_dirty));
    write_pages(&m, 0, 1);
    write_pages(&m, 100, 300);
    write_pages(&m, PAGES - 1, 1);
    CHECK_INT(memory_copy_new(&m.files, BYTES, &copy), 0);
    CHECK_INT(memory_copy_round(copy, threads++ % 3 + 1, &stats), 0);
    CHECK_INT(stats.written_pages, 302);
    CHECK_INT(stats.private_pages, 302);
    CHECK_INT(wrong_pages(&m), 0);
    write_pages(&m, 150, 10); /* known pages change */
    write_pages(&m, 900, 5);  /* and new ones come */
    CHECK_INT(memory_copy_round(copy, threads++ % 3 + 1, &stats), 0);
    CHECK_INT(stats.private_pages, 307);
    CHECK(stats.written_pages >= 15 && stats.written_pages < 302);
    CHECK_INT(wrong_pages(&m), 0);
    CHECK_INT(memory_copy_round(copy, threads++ % 3 + 1, &stats), 0);
    CHECK_INT(wrong_pages(&m), 0);
    memory_copy_free(copy);
    end_machine(&m);
}

static void rounds_copy_what_is_private_and_then_what_changed(void)
{
    check_rounds(/* soft_dirty */ false);
}

static void the_same_where_the_kernel_tracks_changes(void)
{
    if (!memory_copy_soft_dirty()) {
        printf("# this kernel does not track soft-dirty pages: comparing is all there is\n");
        return;
    }
    check_rounds(/* soft_dirty */ true);
}

/* The other direction: only the pages of the map, and nothing else. */
static void pages_of_the_map_are_loaded(void)
{
    struct fake_machine m = {0};
    CLEANUP(memory_copy_freep) struct memory_copy *copy = NULL;
    cleanup_close int pages_fd = memfd_create("pages", MFD_CLOEXEC);
    struct memory_copy_stats stats;
    uint8_t map[(PAGES + 7) / 8] = {0};
    uint8_t page[4096];

    REQUIRE(start_machine(&m, false));
    memset(page, 0xab, sizeof(page));
    page[7] = 0xcd; /* no page of the base is like it */
    for (size_t i = 97; i < 451; i++) {
        ASSERT(pwrite(m.out_fd, page, sizeof(page), (off_t)(i * 4096)) == (ssize_t)sizeof(page));
        map[i / 8] |= (uint8_t)(1u << (i % 8));
    }
    ASSERT(pwrite(pages_fd, map, sizeof(map), MEMORY_PAGES_AT) == (ssize_t)sizeof(map));
    CHECK_INT(wrong_pages(&m), 354);
    close(m.files.mem_fd);
    m.files.mem_fd = open_proc(m.pid, "mem", O_RDWR);
    m.files.pages_fd = pages_fd;
    CHECK(lseek(m.files.maps_fd, 0, SEEK_SET) == 0);
    REQUIRE(memory_copy_new(&m.files, BYTES, &copy) == 0);
    CHECK_INT(memory_copy_load(copy, &stats), 0);
    CHECK_INT(stats.written_pages, 354);
    CHECK_INT(wrong_pages(&m), 0);
    ASSERT(ftruncate(pages_fd, MEMORY_PAGES_AT) == 0);
    CHECK_INT(memory_copy_load(copy, &stats), -EBADMSG);
    end_machine(&m);
}

static void another_size_is_refused(void)
{
    struct fake_machine m = {0};
    struct memory_copy *copy = NULL;

    REQUIRE(start_machine(&m, false));
    CHECK_INT(memory_copy_new(&m.files, BYTES + 4096, &copy), -ENOENT);
    CHECK(lseek(m.files.maps_fd, 0, SEEK_SET) == 0);
    CHECK_INT(memory_copy_new(&m.files, BYTES - 4096, &copy), -EBADMSG);
    CHECK(!copy);
    end_machine(&m);
}

TEST_MAIN(T(rounds_copy_what_is_private_and_then_what_changed),
          T(the_same_where_the_kernel_tracks_changes), T(another_size_is_refused),
          T(pages_of_the_map_are_loaded))
