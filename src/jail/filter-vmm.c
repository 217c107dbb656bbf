/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VMM may ask of the kernel. Found by tracing QEMU 10 under software emulation through boot,
 * snapshot, restore and end, and from its source for KVM. No socket(), no connect(), no namespaces,
 * no mounts, no ptrace, no io_uring, no keys, no bpf, no new processes.
 */
#include "jail/filter.h"

#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#define ALLOW(name_) \
    { \
        .name = name_ \
    }
#define REFUSE(name_, errno_) \
    { \
        .name = name_, .refuse = errno_ \
    }
/* Allowed if (argument n & mask) == value. */
#define ALLOW_IF(name_, n_, mask_, value_) \
    { \
        .name = name_, .has_arg = true, .arg = n_, .mask = mask_, .value = value_ \
    }
#define ALLOW_EQ(name_, n_, value_) ALLOW_IF(name_, n_, 0xffffffffu, value_)

const struct filter_rule filter_vmm_rules[] = {
    /* Memory. */
    ALLOW("brk"),           /* the allocator */
    ALLOW("mmap"),          /* guest RAM, libraries, translated code */
    ALLOW("munmap"),        /* the same */
    ALLOW("mremap"),        /* realloc of large blocks */
    ALLOW("mprotect"),      /* translated code changes between writable and executable */
    ALLOW("madvise"),       /* guest RAM: no dump, no merge, discarded after migration */
    ALLOW("mincore"),       /* QEMU probes whether guest RAM is there */
    ALLOW("msync"),         /* a memory file that is shared (base machine) */
    ALLOW("mbind"),         /* QEMU sets a NUMA policy for guest RAM */
    ALLOW("set_mempolicy"), /* libnuma's constructor probes it */
    ALLOW("get_mempolicy"), /* the same */
    ALLOW("membarrier"),    /* RCU in QEMU */
    ALLOW("memfd_create"),  /* QEMU probes for it; bounded by the memory cgroup */
    /* Threads and time. */
    ALLOW("futex"),             /* locks */
    ALLOW("set_robust_list"),   /* each new thread */
    ALLOW("get_robust_list"),   /* glibc, thread end */
    ALLOW("rseq"),              /* each new thread */
    ALLOW("set_tid_address"),   /* start of the program */
    ALLOW("arch_prctl"),        /* thread-local storage of the first thread */
    ALLOW("gettid"),            /* threads name themselves */
    ALLOW("getpid"),            /* diagnostics */
    ALLOW("getppid"),           /* glib */
    ALLOW("sched_yield"),       /* spinning locks */
    ALLOW("sched_getaffinity"), /* glibc counts processors */
    ALLOW("clock_gettime"),     /* when the vDSO cannot */
    ALLOW("clock_getres"),      /* timers */
    ALLOW("clock_nanosleep"),   /* virtual CPU sleeps */
    ALLOW("nanosleep"),         /* the same */
    ALLOW("gettimeofday"),      /* when the vDSO cannot */
    ALLOW("time"),              /* the same */
    ALLOW("timer_create"),      /* QEMU's alarm timers */
    ALLOW("timer_settime"),     /* the same */
    ALLOW("timer_gettime"),     /* the same */
    ALLOW("timer_delete"),      /* the same */
    ALLOW("timerfd_create"),    /* the same */
    ALLOW("timerfd_settime"),   /* the same */
    ALLOW("timerfd_gettime"),   /* the same */
    ALLOW("restart_syscall"),   /* a sleep interrupted by a signal */
    ALLOW("exit"),              /* end of a thread */
    ALLOW("exit_group"),        /* end of the process */
    /* Signals. */
    ALLOW("rt_sigaction"),    /* handlers */
    ALLOW("rt_sigprocmask"),  /* coroutines and threads */
    ALLOW("rt_sigreturn"),    /* end of a handler */
    ALLOW("rt_sigpending"),   /* KVM eats its own signals */
    ALLOW("rt_sigtimedwait"), /* the same */
    ALLOW("rt_sigsuspend"),   /* coroutine start-up */
    ALLOW("sigaltstack"),     /* coroutine start-up */
    ALLOW("signalfd4"),       /* the main loop */
    ALLOW("tgkill"),          /* kicks a virtual CPU thread; abort() */
    /* Descriptors. */
    ALLOW("read"),          /* all input */
    ALLOW("write"),         /* all output */
    ALLOW("readv"),         /* the same */
    ALLOW("writev"),        /* the same */
    ALLOW("pread64"),       /* disk */
    ALLOW("pwrite64"),      /* disk */
    ALLOW("preadv"),        /* disk */
    ALLOW("pwritev"),       /* disk */
    ALLOW("preadv2"),       /* disk */
    ALLOW("pwritev2"),      /* disk */
    ALLOW("lseek"),         /* disk: size, holes */
    ALLOW("fallocate"),     /* disk: discard, write zeroes */
    ALLOW("ftruncate"),     /* device state is saved into a descriptor */
    ALLOW("fsync"),         /* disk: flush */
    ALLOW("fdatasync"),     /* disk: flush */
    ALLOW("fadvise64"),     /* QEMU drops its own cache of a new disk */
    ALLOW("close"),         /* all */
    ALLOW("close_range"),   /* glib */
    ALLOW("dup"),           /* descriptor sets */
    ALLOW("dup2"),          /* descriptor sets */
    ALLOW("dup3"),          /* descriptor sets */
    ALLOW("fcntl"),         /* flags, locks of the image */
    ALLOW("eventfd2"),      /* notifiers */
    ALLOW("pipe2"),         /* notifiers */
    ALLOW("poll"),          /* threads that wait */
    ALLOW("ppoll"),         /* the main loop */
    ALLOW("select"),        /* old library code */
    ALLOW("pselect6"),      /* the same */
    ALLOW("epoll_create1"), /* aio loop */
    ALLOW("epoll_ctl"),     /* aio loop */
    ALLOW("epoll_wait"),    /* aio loop */
    ALLOW("epoll_pwait"),   /* aio loop */
    ALLOW("epoll_pwait2"),  /* aio loop */
    /* Names: there is nothing to find once the root is sealed. */
    ALLOW("open"),       /* libraries, firmware */
    ALLOW("openat"),     /* the same */
    ALLOW("access"),     /* firmware search path */
    ALLOW("faccessat"),  /* the same */
    ALLOW("faccessat2"), /* the same */
    ALLOW("stat"),       /* the same */
    ALLOW("lstat"),      /* the same */
    ALLOW("fstat"),      /* the same */
    ALLOW("newfstatat"), /* the same */
    ALLOW("statx"),      /* the same */
    ALLOW("statfs"),     /* libselinux's constructor */
    ALLOW("fstatfs"),    /* page size of the memory file */
    ALLOW("readlink"),   /* glib finds its own program */
    ALLOW("readlinkat"), /* the same */
    ALLOW("getcwd"),     /* QEMU's relocation */
    ALLOW("getdents64"), /* libnuma's constructor; modules */
    ALLOW("fchdir"),     /* libpmem's constructor walks a folder */
    ALLOW("chdir"),      /* the same */
    ALLOW("unlink"),     /* QEMU removes the name of a socket at its end: not there */
    ALLOW("umask"),      /* glib */
    /* Sockets that were given: qmp and the channel. */
    ALLOW("accept"),      /* QMP, channel */
    ALLOW("accept4"),     /* the same */
    ALLOW("listen"),      /* QEMU listens again on a socket it was given */
    ALLOW("getsockname"), /* the same */
    ALLOW("getpeername"), /* the same */
    ALLOW("getsockopt"),  /* the same */
    ALLOW("setsockopt"),  /* the same */
    ALLOW("shutdown"),    /* end of a connection */
    ALLOW("sendto"),      /* channel */
    ALLOW("recvfrom"),    /* channel */
    ALLOW("sendmsg"),     /* channel; descriptors over QMP */
    ALLOW("recvmsg"),     /* the same */
    /* What it may know. */
    ALLOW("uname"),     /* start-up */
    ALLOW("sysinfo"),   /* size of the translation cache */
    ALLOW("getrandom"), /* random numbers */
    ALLOW("getcpu"),    /* glibc */
    ALLOW("prlimit64"), /* reads its limits; raising them needs a capability */
    ALLOW("getrlimit"), /* the same */
    ALLOW("getrusage"), /* QMP statistics */
    ALLOW("times"),     /* the same */
    ALLOW("getuid"),    /* start-up */
    ALLOW("geteuid"),   /* start-up */
    ALLOW("getgid"),    /* start-up */
    ALLOW("getegid"),   /* start-up */
    ALLOW("getresuid"), /* start-up */
    ALLOW("getresgid"), /* start-up */
    ALLOW("capget"),    /* libcap-ng's constructor */
    /* Once. */
    ALLOW("execve"),  /* the jail's last step; QEMU's own filter then forbids it */
    ALLOW("seccomp"), /* QEMU adds its own, shorter filter */
    /* Only with these arguments. */
    ALLOW_IF("clone", 0, CLONE_THREAD | CLONE_VM | CLONE_NEWUSER,
             CLONE_THREAD | CLONE_VM),         /* threads, no process */
    ALLOW_IF("ioctl", 1, 0xff00, KVMIO << 8),  /* /dev/kvm, its machine and its processors */
    ALLOW_EQ("ioctl", 1, TCGETS),              /* is this a terminal? */
    ALLOW_EQ("ioctl", 1, TCSETS),              /* QEMU's stdio console tries it; it is none */
    ALLOW_EQ("ioctl", 1, FIONREAD),            /* how much is there? */
    ALLOW_EQ("ioctl", 1, FIONBIO),             /* do not block */
    ALLOW_EQ("ioctl", 1, TUNGETIFF),           /* the tap: has it headers? */
    ALLOW_EQ("ioctl", 1, TUNGETFEATURES),      /* the same */
    ALLOW_EQ("ioctl", 1, TUNGETVNETHDRSZ),     /* the same */
    ALLOW_EQ("ioctl", 1, TUNSETVNETHDRSZ),     /* as long as virtio's */
    ALLOW_EQ("ioctl", 1, TUNSETVNETLE),        /* and in its byte order */
    ALLOW_EQ("ioctl", 1, TUNSETVNETBE),        /* QEMU tries it to see that it is refused */
    ALLOW_EQ("ioctl", 1, TUNSETOFFLOAD),       /* what the guest's driver can do */
    ALLOW_EQ("ioctl", 1, TUNSETSNDBUF),        /* how much may wait for the host */
    ALLOW_EQ("ioctl", 1, TUNSETSTEERINGEBPF),  /* taking away a program that nobody has set */
    ALLOW_EQ("prctl", 0, PR_SET_NAME),         /* threads name themselves */
    ALLOW_EQ("prctl", 0, PR_GET_NAME),         /* the same */
    ALLOW_EQ("prctl", 0, PR_SET_NO_NEW_PRIVS), /* before QEMU's own filter */
    ALLOW_EQ("prctl", 0, PR_MCE_KILL),         /* memory errors reach the guest */
    ALLOW_EQ("prctl", 0, PR_SET_TIMERSLACK),   /* the main loop */
    ALLOW_EQ("prctl", 0, PR_CAPBSET_READ),     /* libcap-ng's constructor */
    /* Tried by libraries, which go on without. */
    REFUSE("clone3", ENOSYS),            /* its flags are behind a pointer: glibc then uses clone */
    REFUSE("io_uring_setup", ENOSYS),    /* too large a surface: QEMU then uses threads */
    REFUSE("sched_setscheduler", EPERM), /* glib's thread pools */
    REFUSE("sched_setattr", EPERM),      /* the same */
    REFUSE("sched_getattr", EPERM),      /* the same */
    REFUSE("mlockall", EPERM),           /* never asked for by our arguments */
};
const size_t filter_vmm_n_rules = ARRAY_SIZE(filter_vmm_rules);
