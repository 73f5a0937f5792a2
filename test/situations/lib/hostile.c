// hostile.c: a C library whose functions allocate, as tracers and sandboxes cause it to. Each
// of these functions allocates unless it is called from within one of them.

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static __thread int inside;

static void *allocate_and_find(const char *name) {
  void *p = inside++ ? NULL : malloc(100), *q = inside > 1 ? NULL : calloc(1, 3000);
  if (p) memset(p, 0x55, 100);
  void *real = dlsym(RTLD_NEXT, name);
  free(q);
  free(p);
  if (!real) abort();
  return real;
}

#define HOSTILE(type, name, parameters, arguments) \
  type name parameters { \
    static type(*real) parameters; \
    if (real) free(inside++ ? NULL : malloc(300)); \
    else real = (type(*) parameters)allocate_and_find(#name); \
    type result = real arguments; \
    inside--; \
    return result; \
  }

HOSTILE(char *, getenv, (const char *n), (n))
HOSTILE(char *, secure_getenv, (const char *n), (n))
HOSTILE(long, sysconf, (int n), (n))
HOSTILE(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
HOSTILE(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
HOSTILE(int, close, (int fd), (fd))
HOSTILE(ssize_t, getrandom, (void *p, size_t n, unsigned f), (p, n, f))
HOSTILE(int, clock_gettime, (clockid_t c, struct timespec *t), (c, t))
HOSTILE(int, sched_getaffinity, (pid_t p, size_t n, cpu_set_t *s), (p, n, s))
HOSTILE(int, pthread_key_create, (pthread_key_t * k, void (*f)(void *)), (k, f))
HOSTILE(int, pthread_setspecific, (pthread_key_t k, const void *p), (k, p))
HOSTILE(void *, pthread_getspecific, (pthread_key_t k), (k))
HOSTILE(int, pthread_once, (pthread_once_t * o, void (*f)(void)), (o, f))
HOSTILE(int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
HOSTILE(int, pthread_mutex_unlock, (pthread_mutex_t * m), (m))
HOSTILE(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *p),
        (t, a, f, p))

#define HOSTILE_OPEN(name, parameters, before, arguments) \
  int name parameters { \
    va_list list; \
    va_start(list, flags); \
    unsigned mode = va_arg(list, unsigned); \
    va_end(list); \
    before *real = (before *)allocate_and_find(#name); \
    int fd = real arguments; \
    inside--; \
    return fd; \
  }
typedef int open_t(const char *, int, ...);
typedef int openat_t(int, const char *, int, ...);
HOSTILE_OPEN(open, (const char *path, int flags, ...), open_t, (path, flags, mode))
HOSTILE_OPEN(openat, (int at, const char *path, int flags, ...), openat_t, (at, path, flags, mode))
