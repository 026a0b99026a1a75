/* What clients of a cache do, without an interpreter between the calls: lookups, stores and loads as LMCache's fs_native
 * makes them, reads of weight files. tools/lab bench compiles it for each run (client.py) and reads its JSON.
 *
 *     bench_client MODE NAME=VALUE ...
 *
 *     stat   seconds threads                      paths on stdin; 0 seconds: each once
 *     store  dir count first size threads direct  stat, open, write, close, rename, each object by one thread
 *     load   dir count first size threads direct  open, read, close
 *     raw    path count size direct               a write of each object's size straight to a device
 *     pieces path size piece threads direct       one object, its pieces written by the threads in turn
 *     read   path piece threads direct            one file, its pieces read by the threads in turn
 *     drop   path                                 written back, and out of the page cache
 *
 * Each block of 4 KiB begins with a mark of its object and place, and loads look at some of them: an answer with other
 * bytes ends the program. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, PATH = 1400 };

static const char *dir = ".", *path = "";
static long count = 1, first, size = BLOCK, threads = 1, direct, piece = 1 << 20;
static double seconds;

static char **names;
static long name_count;
static int shared_fd;
static atomic_long next_item, found;
static int64_t *write_ns, *commit_ns, *total_ns;

static void fail(const char *form, ...)
{
    int number = errno;
    va_list words;
    va_start(words, form);
    vfprintf(stderr, form, words);
    va_end(words);
    fprintf(stderr, ": %s\n", strerror(number));
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *buffer_of(size_t length)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, BLOCK, length))
        fail("no memory for %zu bytes", length);
    memset(buffer, 0x5a, length);
    return buffer;
}

static uint64_t mark(long object, long offset)
{
    return (uint64_t)object * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)offset + 1;
}

static void put_marks(char *buffer, size_t length, long object, long offset)
{
    for (size_t at = 0; at + 8 <= length; at += BLOCK) {
        uint64_t value = mark(object, offset + (long)at);
        memcpy(buffer + at, &value, 8);
    }
}

/* First, last and middle block only: looking at all of a cold buffer would cost a part of what is measured. */
static void check_marks(const char *buffer, size_t length, long object, long offset)
{
    size_t last = (length - 1) / BLOCK * BLOCK, places[3] = {0, length / 2 / BLOCK * BLOCK, last};
    for (int i = 0; i < 3; i++) {
        uint64_t value, expected = mark(object, offset + (long)places[i]);
        memcpy(&value, buffer + places[i], 8);
        if (value != expected) {
            fprintf(stderr, "object %ld has wrong bytes at %ld\n", object, offset + (long)places[i]);
            exit(3);
        }
    }
}

static void write_at(int fd, const char *buffer, size_t length, off_t offset, const char *name)
{
    for (size_t done = 0; done < length;) {
        ssize_t moved = pwrite(fd, buffer + done, length - done, offset + (off_t)done);
        if (moved <= 0)
            fail("writing %s", name);
        done += (size_t)moved;
    }
}

static void read_at(int fd, char *buffer, size_t length, off_t offset, const char *name)
{
    for (size_t done = 0; done < length;) {
        ssize_t moved = pread(fd, buffer + done, length - done, offset + (off_t)done);
        if (moved <= 0)
            fail("reading %s at %ld", name, (long)offset + (long)done);
        done += (size_t)moved;
    }
}

static int open_or_fail(const char *name, int flags)
{
    int fd = open(name, flags | O_CLOEXEC | (direct ? O_DIRECT : 0), 0644);
    if (fd < 0)
        fail("opening %s", name);
    return fd;
}

static void name_of(char *name, long object, const char *ending)
{
    snprintf(name, PATH, "%s/bench-model@0x%08lx@0@%032lx.%s", dir, object, object, ending);
}

static void *stat_some(void *arg)
{
    long thread = (long)(intptr_t)arg, calls = 0, present = 0;
    int64_t end = now() + (int64_t)(seconds * 1e9);
    struct stat status;
    do {
        for (long i = thread; i < name_count; i += threads, calls++)
            present += stat(names[i], &status) == 0;
    } while (now() < end);
    atomic_fetch_add(&next_item, calls);
    atomic_fetch_add(&found, present);
    return NULL;
}

static void *store_some(void *arg)
{
    char *buffer = buffer_of((size_t)size), final[PATH], tmp[PATH];
    struct stat status;
    (void)arg;
    for (long i; (i = atomic_fetch_add(&next_item, 1)) < count;) {
        put_marks(buffer, (size_t)size, first + i, 0);
        name_of(final, first + i, "data");
        name_of(tmp, first + i, "tmp");
        int64_t start = now();
        if (stat(final, &status) == 0)
            fail("%s is there before it was stored", final);
        int fd = open_or_fail(tmp, O_WRONLY | O_CREAT | O_TRUNC);
        int64_t opened = now();
        write_at(fd, buffer, (size_t)size, 0, tmp);
        int64_t written = now();
        if (close(fd))
            fail("closing %s", tmp);
        if (rename(tmp, final))
            fail("renaming %s", tmp);
        int64_t done = now();
        write_ns[i] = written - opened;
        commit_ns[i] = done - written;
        total_ns[i] = done - start;
    }
    free(buffer);
    return NULL;
}

static void *load_some(void *arg)
{
    char *buffer = buffer_of((size_t)size), final[PATH];
    (void)arg;
    for (long i; (i = atomic_fetch_add(&next_item, 1)) < count;) {
        name_of(final, first + i, "data");
        int64_t start = now();
        int fd = open_or_fail(final, O_RDONLY);
        read_at(fd, buffer, (size_t)size, 0, final);
        close(fd);
        total_ns[i] = now() - start;
        check_marks(buffer, (size_t)size, first + i, 0);
    }
    free(buffer);
    return NULL;
}

static void *raw_some(void *arg)
{
    char *buffer = buffer_of((size_t)size);
    (void)arg;
    for (long i; (i = atomic_fetch_add(&next_item, 1)) < count;) {
        int64_t start = now();
        write_at(shared_fd, buffer, (size_t)size, i * size, path);
        total_ns[i] = now() - start;
    }
    free(buffer);
    return NULL;
}

static void *piece_some(void *arg)
{
    int reading = arg != NULL;
    char *buffer = buffer_of((size_t)piece);
    for (long i; (i = atomic_fetch_add(&next_item, 1)) * piece < size;) {
        size_t length = (size_t)(size - i * piece < piece ? size - i * piece : piece);
        if (reading) {
            read_at(shared_fd, buffer, length, i * piece, path);
            check_marks(buffer, length, 0, i * piece);
        } else {
            put_marks(buffer, length, 0, i * piece);
            write_at(shared_fd, buffer, length, i * piece, path);
        }
    }
    free(buffer);
    return NULL;
}

/* Seconds that the threads took together. */
static double run(void *(*work)(void *), int numbered, void *same)
{
    pthread_t ids[256];
    int64_t start = now();
    if (threads < 1 || threads > 256)
        threads = 1;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, work, numbered ? (void *)(intptr_t)i : same))
            fail("no thread");
    for (long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return (double)(now() - start) / 1e9;
}

/* Part of a file's pages that are in the page cache. */
static double resident(int fd, long length)
{
    size_t pages = (size_t)((length + BLOCK - 1) / BLOCK), present = 0;
    void *mapped = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *seen = malloc(pages);
    if (mapped == MAP_FAILED || !seen || mincore(mapped, (size_t)length, seen))
        return -1;
    for (size_t i = 0; i < pages; i++)
        present += seen[i] & 1;
    munmap(mapped, (size_t)length);
    free(seen);
    return (double)present / (double)pages;
}

static void read_names(void)
{
    char line[PATH];
    long room = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (name_count == room) {
            room = room ? room * 2 : 1024;
            names = realloc(names, (size_t)room * sizeof *names);
        }
        if (!names || !(names[name_count++] = strdup(line)))
            fail("no memory for names");
    }
}

static void print_times(const char *name, const int64_t *times)
{
    printf(", \"%s\": [", name);
    for (long i = 0; i < count; i++)
        printf("%s%.4f", i ? ", " : "", (double)times[i] / 1e6);
    printf("]");
}

static long length_of(int fd)
{
    struct stat status;
    if (fstat(fd, &status))
        fail("looking at %s", path);
    return (long)status.st_size;
}

static void take(char *word)
{
    char *value = strchr(word, '=');
    struct { const char *name; long *number; } numbers[] = {
        {"count", &count}, {"first", &first}, {"size", &size}, {"threads", &threads}, {"direct", &direct}, {"piece", &piece},
    };
    if (!value)
        goto unknown;
    *value++ = 0;
    if (!strcmp(word, "dir")) { dir = value; return; }
    if (!strcmp(word, "path")) { path = value; return; }
    if (!strcmp(word, "seconds")) { seconds = atof(value); return; }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(word, numbers[i].name)) { *numbers[i].number = atol(value); return; }
unknown:
    fprintf(stderr, "unknown word %s\n", word);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i++)
        take(argv[i]);
    write_ns = calloc((size_t)count, sizeof *write_ns);
    commit_ns = calloc((size_t)count, sizeof *commit_ns);
    total_ns = calloc((size_t)count, sizeof *total_ns);
    if (!write_ns || !commit_ns || !total_ns)
        fail("no memory for %ld times", count);
    if (!strcmp(mode, "stat")) {
        read_names();
        double took = run(stat_some, 1, NULL);
        printf("{\"seconds\": %.6f, \"calls\": %ld, \"found\": %ld}\n", took, (long)next_item, (long)found);
    } else if (!strcmp(mode, "store")) {
        double took = run(store_some, 0, NULL);
        int fd = open(dir, O_RDONLY | O_DIRECTORY);
        int64_t start = now();
        if (fd < 0 || fsync(fd))
            fail("making %s durable", dir);
        printf("{\"seconds\": %.6f, \"sync_seconds\": %.6f", took, (double)(now() - start) / 1e9);
        print_times("write_ms", write_ns);
        print_times("commit_ms", commit_ns);
        print_times("total_ms", total_ns);
        printf("}\n");
    } else if (!strcmp(mode, "load")) {
        printf("{\"seconds\": %.6f", run(load_some, 0, NULL));
        print_times("total_ms", total_ns);
        printf("}\n");
    } else if (!strcmp(mode, "raw")) {
        shared_fd = open_or_fail(path, O_WRONLY);
        printf("{\"seconds\": %.6f", run(raw_some, 0, NULL));
        print_times("total_ms", total_ns);
        printf("}\n");
    } else if (!strcmp(mode, "pieces")) {
        char tmp[PATH];
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        shared_fd = open_or_fail(tmp, O_WRONLY | O_CREAT | O_TRUNC);
        double took = run(piece_some, 0, NULL);
        if (fsync(shared_fd) || close(shared_fd) || rename(tmp, path))
            fail("ending %s", tmp);
        printf("{\"seconds\": %.6f}\n", took);
    } else if (!strcmp(mode, "read")) {
        shared_fd = open_or_fail(path, O_RDONLY);
        size = length_of(shared_fd);
        double cached = resident(shared_fd, size), took = run(piece_some, 0, &shared_fd);
        printf("{\"seconds\": %.6f, \"bytes\": %ld, \"resident\": %.4f}\n", took, size, cached);
    } else if (!strcmp(mode, "drop")) {
        shared_fd = open_or_fail(path, O_RDONLY);
        size = length_of(shared_fd);
        fsync(shared_fd);
        posix_fadvise(shared_fd, 0, 0, POSIX_FADV_DONTNEED);
        printf("{\"resident\": %.4f}\n", resident(shared_fd, size));
    } else {
        fprintf(stderr, "unknown mode %s\n", mode);
        return 2;
    }
    return 0;
}
