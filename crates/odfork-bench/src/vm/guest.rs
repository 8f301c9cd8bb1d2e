//! What a machine is made of: the guest's Linux, its first process in an archive, and the library
//! that forks QEMU. Made and fetched once, by other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Error, Result};

use crate::foreign::build::{build, write};
use crate::foreign::{clear, found, make_folder};

const GUEST: &str = include_str!("programs/guest.c");
const FORKER: &str = include_str!("programs/forker.c");
/// Into the folder `kernel`, without installing anything.
const FETCH: &str = "\
mkdir -p kernel && cd kernel
name=$(apt-cache depends --important linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \\(linux-image-[0-9].*\\)/\\1/p' | head -n 1)
apt-get download \"$name\" && dpkg-deb -x \"$name\"_*.deb . && rm \"$name\"_*.deb
cp boot/vmlinuz-* vmlinuz";
const ARCHIVE: &str = "echo init | cpio --create --format=newc --quiet >archive";

pub struct Workshop {
    pub qemu: PathBuf,
    pub kernel: PathBuf,
    pub archive: PathBuf,
    /// What is preloaded into QEMU.
    pub forker: PathBuf,
}

impl Workshop {
    pub fn make(folder: PathBuf, kernel: Option<&Path>) -> Result<Workshop> {
        let tool = |name: &str, package: &str| found(Path::new(name), package);
        let qemu = tool("qemu-system-x86_64", "the Debian package qemu-system-x86")?;
        let compiler = tool("cc", "the Debian packages gcc and libc6-dev")?;
        tool("cpio", "the Debian package cpio")?;
        make_folder(&folder, None).map_err(Error::msg)?;
        let own = folder.join("kernel/vmlinuz");
        let kernel = match kernel {
            Some(file) if file.is_file() => std::path::absolute(file)?,
            Some(file) => bail!("{} is no file; --kernel names a Linux", file.display()),
            None => build(shell(&folder, FETCH), &own, &[]).map(|()| own)?,
        };
        let compile = |name: &str, words: &[&str], source: &str, output: &Path| -> Result<()> {
            write(&folder.join(name), source)?;
            let mut command = Command::new(&compiler);
            command.current_dir(&folder).args(words).arg("-O2").arg(name).arg("-o").arg(output);
            build(command, output, &[source])
        };
        let (init, forker) = (folder.join("init"), folder.join("forker.so"));
        compile("guest.c", &["-static"], GUEST, &init)?;
        compile("forker.c", &["-shared", "-fPIC"], FORKER, &forker)?;
        let archive = folder.join("archive");
        build(shell(&folder, ARCHIVE), &archive, &[GUEST])?;
        Ok(Workshop { qemu, kernel, archive, forker })
    }
}

fn shell(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    clear(&mut command, &["ODFORK_"]);
    command.current_dir(folder).args(["-e", "-c", script]);
    command
}
