//! The library inside a program: wrapped functions of the C library, constructor and report at exit
//! (`life`), and which programs are left alone (`program`). Compiled with the feature
//! `interpose`.
//!
//! Rules: nothing here may panic (a panic would abort somebody's program), no
//! heap, no stdio; `errno` changes only where the wrapped function would change it.
//!
//! Each wrapper does one thing more than the function it stands for, and only
//! when memory it touches may be frozen; results and `errno` are the
//! function's own. Why each is here:
//!
//! | function | on frozen memory the kernel would |
//! | --- | --- |
//! | fork | copy page tables that need not be there |
//! | madvise DONTNEED, FREE, ... | show the image again instead of zeros, or refuse |
//! | mmap, munmap, mprotect, pkey_mprotect, shmat, sem_open | put something else where memory was frozen: the runtime forgets it |
//! | sbrk, mprotect, mmap | let the program use what copies of it would take |
//! | mremap | grow into the image's file instead of zeros |
//! | madvise DONTFORK, DONTDUMP, MERGEABLE; mlock, mlock2, mlockall; mseal | lose the property when it is thawed: it is thawed first |
//! | process_madvise | do as madvise, for this process too (Linux 6.13) |
//! | realloc | (inside libc) do the same by mremap |
//! | malloc_trim | (inside libc) show old content where free blocks were given back |
//! | syscall | do any of these without the wrapper |
//! | prctl, syscall | get a filter installed that kills for our later calls |
//! | pthread_create, thrd_create, pthread_mutexattr_setprotocol | (guard) fail where a protected page is written without retry |
//! | ioctl, syscall | make a userfaultfd, which watches no file of ours |
//! | vmsplice, setsockopt | keep a page of an image beyond its mappings |
//! | setuid, setgid, ... (`privileges`), chroot, setns, capset, prctl | (in place) let a descendant with other privileges see what is written later |
//! | unshare | make our helper the first process of the program's new namespace |
//! | waitpid, wait3, wait4, waitid | (with __WALL or __WCLONE) find our helper task |
//! | execve, execv, ... (`execute`) | leave our helper task to the new program, dead |
//! | clone | let a task that is no thread write while memory moves |
//! | epoll_wait, sigtimedwait, semtimedop, nanosleep, ... (`polls`) | (threads held by ptrace) begin their time anew, or tell what is left of it |
//! | recvmmsg, sendmmsg, vmsplice, ioctl, syscall | (threads held by ptrace) answer in part, with nothing to mend it |
//! | sigaction, signal, __sysv_signal, sigset, syscall | run a handler where the lock is held, which leaves ignored signals open |
//! | _Fork, clone, syscall | copy what a pass has moved before the sets say so |
//! | wait, waitpid, wait3, wait4, waitid | (live) tell that memory may be shared again |
//! | open, openat, fcntl, setsockopt | (live) reach memory behind the page tables |
//! | dlsym, dlvsym | get past all of these, by the C library's own functions |
//! | dlopen, dlmopen, dlclose | load code whose calls get past them |
//! | setrlimit, prlimit | (live) leave no room to make memory private again |
//! | sem_init, pthread_mutexattr_setpshared, ... (`futexes`) | (live) wait by a place in a file |

mod advice;
mod asan;
mod environment;
mod errno;
mod execute;
mod files;
mod fork;
mod futexes;
mod handlers;
mod life;
mod limits;
mod locking;
mod lookups;
mod mapping;
mod next;
mod polls;
mod privileges;
mod program;
mod remap;
mod splice;
mod symbols;
mod syscall;
mod tasks;
mod trim;
mod waits;

pub use fork::fork;
pub use life::panicked;
