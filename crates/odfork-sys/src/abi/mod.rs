//! What the kernel's headers say and the `libc` crate does not, each once: numbers, structures.
//!
//! Owns: userfaultfd(2), `/proc/PID/pagemap`, the query of `/proc/PID/maps`, `clone3`, advice for
//! memory, filters, tmpfs, calls that not every architecture has, and the `prctl` of the kernel
//! engine, with the Linux version that brought each. Names follow the headers. Does not own: calls
//! ([`crate::call`]) and what `libc` has already (checked against libc 0.2.191). No code, so that
//! every crate can use it.

pub mod advice;
pub mod calls;
pub mod clone;
pub mod cow_fork;
pub mod pagemap;
pub mod procmap;
pub mod seccomp;
pub mod tmpfs;
pub mod userfaultfd;

/// `_IO(kind, number)`.
const fn io(kind: u8, number: u8) -> u64 {
    ioctl(0, kind, number, 0)
}

/// `_IOR(kind, number, T)`.
const fn ior<T>(kind: u8, number: u8) -> u64 {
    ioctl(2, kind, number, size_of::<T>())
}

/// `_IOWR(kind, number, T)`.
const fn iowr<T>(kind: u8, number: u8) -> u64 {
    ioctl(3, kind, number, size_of::<T>())
}

/// `_IOC(direction, kind, number, size)`.
const fn ioctl(direction: u64, kind: u8, number: u8, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | (kind as u64) << 8 | number as u64
}

#[cfg(test)]
mod tests {
    use super::{clone, pagemap, procmap, userfaultfd};

    /// The numbers hold the sizes of the structures, so they say at once whether a layout is right.
    #[test]
    fn numbers_are_those_of_linux() {
        assert_eq!(userfaultfd::NEW, 0xaa00);
        assert_eq!(userfaultfd::API, 0xc018_aa3f);
        assert_eq!(userfaultfd::REGISTER, 0xc020_aa00);
        assert_eq!(userfaultfd::UNREGISTER, 0x8010_aa01);
        assert_eq!(userfaultfd::WAKE, 0x8010_aa02);
        assert_eq!(userfaultfd::COPY, 0xc028_aa03);
        assert_eq!(userfaultfd::ZEROPAGE, 0xc020_aa04);
        assert_eq!(userfaultfd::WRITEPROTECT, 0xc018_aa06);
        assert_eq!(userfaultfd::CONTINUE, 0xc020_aa07);
        assert_eq!(userfaultfd::POISON, 0xc020_aa08);
        assert_eq!(pagemap::SCAN, 0xc060_6610);
        assert_eq!(procmap::QUERY, 0xc068_6611);
    }

    /// What is read from a descriptor, or filled in an array, has no number that holds its size.
    #[test]
    fn sizes_and_places_without_a_number_are_those_of_linux() {
        use core::mem::offset_of;
        assert_eq!(size_of::<userfaultfd::Message>(), 32);
        assert_eq!(offset_of!(userfaultfd::Message, flags), 8);
        assert_eq!(offset_of!(userfaultfd::Message, address), 16);
        assert_eq!(offset_of!(userfaultfd::CopyPages, copied), 32);
        assert_eq!(size_of::<clone::CloneArgs>(), 88);
        assert_eq!(offset_of!(clone::CloneArgs, cgroup), 80);
        assert_eq!(size_of::<pagemap::Region>(), 24);
        assert_eq!(offset_of!(pagemap::ScanArg, vec), 40);
        assert_eq!(offset_of!(pagemap::ScanArg, return_mask), 88);
        assert_eq!(offset_of!(procmap::Query, inode), 64);
        assert_eq!(offset_of!(procmap::Query, name_size), 80);
        assert_eq!(offset_of!(procmap::Query, name_address), 88);
    }
}
