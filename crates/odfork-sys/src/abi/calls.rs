//! Numbers of system calls that not every architecture has.
//!
//! Where the kernel has no such call, the number is one that no call ever has.

#![allow(non_upper_case_globals)]

macro_rules! numbers {
    ($($name:ident, $none:literal;)*) => { $(
        /// The number of this call.
        #[cfg(target_arch = "x86_64")]
        pub const $name: i64 = libc::$name;
        /// No number of a call: this architecture has none of this name.
        #[cfg(not(target_arch = "x86_64"))]
        pub const $name: i64 = $none;
    )* };
}

numbers! {
    SYS_fork, -1001;
    SYS_vfork, -1002;
    SYS_open, -1003;
    SYS_poll, -1004;
    SYS_pause, -1005;
    SYS_select, -1006;
    SYS_epoll_wait, -1007;
    SYS_stat, -1008;
    SYS_lstat, -1009;
    SYS_access, -1010;
    SYS_readlink, -1011;
    SYS_rename, -1012;
    SYS_unlink, -1013;
    SYS_mkdir, -1014;
}
