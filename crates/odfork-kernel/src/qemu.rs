//! The command line of QEMU. Plain QEMU, no wrapper: everything a guest needs is on this one
//! command line.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

use crate::guest::GuestSpec;

/// How QEMU runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accel {
    Kvm,
    Tcg,
    /// Emulation whose clock is the number of instructions: a nanosecond each, whatever else the
    /// host does.
    Counting,
}

pub const PROGRAM: &str = "qemu-system-x86_64";

/// Chosen so that time under emulation is not mistaken for a fault, and that a panic ends the guest
/// at once: tsc             one rdtsc reads the clock; the others leave the emulator panic=-1
/// reboot, which -no-reboot turns into the end of QEMU oops=panic      what goes on after an oops
/// is worth nothing unknown_nmi     what the host sends into a guest that hangs: a panic with all
/// processors, locks and waiting tasks stall, watchdog a virtual CPU can lose its processor to the
/// host's other work for minutes
const KERNEL_WORDS: &str =
    "console=ttyS0 ignore_loglevel panic=-1 oops=panic nokaslr clocksource=tsc tsc=reliable \
     rcupdate.rcu_cpu_stall_timeout=300 rcupdate.rcu_exp_cpu_stall_timeout=300000 \
     kasan_multi_shot unknown_nmi_panic panic_print=0xc8";

/// What TCG can do, without five-level page tables, which make each page walk of the emulator
/// longer, and without "fast" string instructions: they are emulated byte by byte, and a kernel
/// that believes in them clears and copies pages six times slower.
const EMULATED: &str = "max,la57=off,erms=off,fsrm=off";

/// The streams of one session: writing ends of pipes, and files.
#[derive(Debug)]
pub struct Channels<'a> {
    pub out: RawFd,
    pub err: RawFd,
    pub control: RawFd,
    /// QEMU's own end of the connection it takes orders on.
    pub monitor: RawFd,
    /// Folder with initrd, console, swap and scratch.
    pub folder: &'a Path,
}

/// All arguments after the program's name.
pub fn arguments(spec: &GuestSpec, accel: Accel, channels: &Channels) -> Vec<OsString> {
    let machine = &spec.machine;
    let mut list = Arguments::default();
    list.add(
        "-nodefaults -no-user-config -display none -no-reboot -machine \
         q35,vmport=off,smbus=off,sata=off,usb=off",
    );
    list.add(match accel {
        Accel::Kvm => "-accel kvm -cpu host",
        // Every processor in a thread of its own.
        Accel::Tcg => "-accel tcg,thread=multi -cpu",
        // Processors in turn in one thread: the same run gives the same time.
        Accel::Counting => "-accel tcg,thread=single -icount shift=0,sleep=off -cpu",
    });
    if accel != Accel::Kvm {
        list.add(EMULATED);
    }
    list.add(&format!("-smp {} -m {}M", machine.guest.cpus, machine.guest.memory >> 20));
    list.pair("-kernel", spec.kernel.as_os_str());
    list.pair("-initrd", channels.folder.join("initrd"));
    let more = machine.append.as_deref().unwrap_or("");
    list.pair("-append", format!("{KERNEL_WORDS} {more}").trim_end());
    list.option("-chardev", "file,id=console,path=", &channels.folder.join("console"), "");
    list.add("-serial chardev:console");
    list.add(&format!(
        "-chardev socket,id=monitor,fd={} -mon chardev=monitor,mode=control",
        channels.monitor
    ));
    add_files(&mut list, spec);
    add_disks(&mut list, spec, channels);
    add_streams(&mut list, spec, channels);
    list.add(
        "-object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,rng=random",
    );
    list.0
}

fn add_files(list: &mut Arguments, spec: &GuestSpec) {
    // The host has other file systems below its root: their inode numbers are told apart by
    // "remap".
    list.option(
        "-fsdev",
        "local,id=host,security_model=none,readonly=on,multidevs=remap,path=",
        Path::new("/"),
        "",
    );
    list.add("-device virtio-9p-pci,fsdev=host,mount_tag=host");
    if let Some(folder) = &spec.share {
        list.option(
            "-fsdev",
            "local,id=share,security_model=none,multidevs=remap,path=",
            folder,
            "",
        );
        list.add("-device virtio-9p-pci,fsdev=share,mount_tag=share");
    }
}

fn add_disks(list: &mut Arguments, spec: &GuestSpec, channels: &Channels) {
    for (name, size) in [("swap", spec.machine.swap), ("scratch", spec.machine.scratch)] {
        if size.is_some() {
            let head = format!("if=none,id={name},format=raw,cache=unsafe,discard=unmap,file=");
            list.option("-drive", &head, &channels.folder.join(name), "");
            list.add(&format!("-device virtio-blk-pci,drive={name}"));
        }
    }
}

/// Port 0 can be a terminal only; 1, 2 and 3 are the command's output and errors, and the guest's
/// reports.
fn add_streams(list: &mut Arguments, spec: &GuestSpec, channels: &Channels) {
    list.add("-device virtio-serial-pci");
    if spec.is_interactive() {
        list.add("-chardev stdio,id=terminal,signal=off -device virtconsole,chardev=terminal,nr=0");
    }
    for (number, name, end) in
        [(1, "out", channels.out), (2, "err", channels.err), (3, "control", channels.control)]
    {
        list.add(&format!(
            "-add-fd set={number},fd={end} -chardev \
             file,append=on,id={name},path=/dev/fdset/{number} -device \
             virtserialport,chardev={name},nr={number},name=odfork.{name}"
        ));
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, words: &str) {
        self.0.extend(words.split_whitespace().map(OsString::from));
    }

    fn pair(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.push(name.into());
        self.0.push(value.into());
    }

    /// A value with a path in it: QEMU takes a comma for the end of it unless it is doubled.
    fn option(&mut self, name: &str, head: &str, path: &Path, tail: &str) {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut value = head.as_bytes().to_vec();
        for &byte in path.as_os_str().as_bytes() {
            value.push(byte);
            if byte == b',' {
                value.push(b',');
            }
        }
        value.extend_from_slice(tail.as_bytes());
        self.pair(name, OsString::from_vec(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{request, Request};

    fn line(more: &[&str], accel: Accel) -> String {
        let words = ["kernel", "boot"].iter().chain(more).copied();
        let matches = crate::options::command().get_matches_from(words);
        let Request::Boot(boot) = request(&matches) else { panic!("a boot") };
        let spec = GuestSpec {
            kernel: "/k/bzImage".into(),
            machine: boot.machine,
            command: boot.command,
            env: Vec::new(),
            share: boot.share,
            timeout: None,
        };
        let channels =
            Channels { out: 5, err: 6, control: 7, monitor: 8, folder: Path::new("/s,1") };
        let list = super::arguments(&spec, accel, &channels);
        list.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_command_has_three_streams_and_no_terminal() {
        let line = line(&["--memory", "1G", "--", "true"], Accel::Tcg);
        assert!(line.contains("-accel tcg,thread=multi") && line.contains("-m 1024M"), "{line}");
        assert!(line.contains("set=3,fd=7") && !line.contains("virtconsole"), "{line}");
        assert!(line.contains("readonly=on") && !line.contains("virtio-blk"), "{line}");
        assert!(
            line.contains("-initrd /s,1/initrd") && line.contains("path=/s,,1/console"),
            "{line}"
        );
    }

    #[test]
    fn disks_share_and_terminal_when_asked_for() {
        let line =
            line(&["--swap", "1G", "--share", "/a,b", "--append", "numa=fake=2"], Accel::Kvm);
        assert!(line.contains("-accel kvm") && line.contains("virtconsole"), "{line}");
        assert!(line.contains("file=/s,,1/swap") && line.contains("path=/a,,b"), "{line}");
        assert!(line.contains(" numa=fake=2 ") && line.contains("fd=8"), "{line}");
    }
}
