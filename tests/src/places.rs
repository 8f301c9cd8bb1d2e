//! The places programs are started in: who they are there, and which system calls they may make.
//!
//! Owns: the table. The lists of calls are in `confine/`, taken from what the makers publish. Only
//! filters and privileges are emulated, not the file systems and namespaces around them.

use crate::mode::UNPRIVILEGED;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Allow,
    Errno(i32),
    Kill,
}

/// One filter: what happens to the calls of a list, and to all others.
#[derive(Debug)]
pub struct Filter {
    pub calls: &'static str,
    pub listed: Act,
    pub others: Act,
}

/// Who may open `/dev/userfaultfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Root, as the kernel made it.
    Root,
    /// The user too, by a rule of udev.
    User,
    /// It is not there.
    Nobody,
}

/// A place.
#[derive(Debug)]
pub struct Place {
    pub name: &'static str,
    /// What it stands for, in the words of those who run programs there.
    pub words: &'static str,
    pub user: u32,
    /// In a user namespace that maps this user to root.
    pub user_namespace: bool,
    /// Bits of the capabilities that can be had.
    pub capabilities: u64,
    pub no_new_privileges: bool,
    pub device: Device,
    /// A tmpfs of huge pages is passed in, and named: [`PASSED_IN`].
    pub directory: bool,
    /// `shmem_enabled` is `advise` on the host.
    pub advise: bool,
    pub filters: &'static [Filter],
    /// What freezing comes to there: a backing file of 2 MB pages, and with threads too.
    pub huge: bool,
    pub threads: bool,
}

const EVERY_CAPABILITY: u64 = u64::MAX;
const MKNOD: u64 = 1 << 27;
const RAWIO: u64 = 1 << 17;
/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE,
/// SYS_CHROOT, SETFCAP: what Podman leaves.
const PODMAN: u64 = 0b1_1111_1011 | 1 << 10 | 1 << 18 | 1 << 31;
/// Docker leaves NET_RAW, MKNOD and AUDIT_WRITE too.
const DOCKER: u64 = PODMAN | 1 << 13 | MKNOD | 1 << 29;

const EPERM: Act = Act::Errno(libc::EPERM);
const ENOSYS: Act = Act::Errno(libc::ENOSYS);

const DOCKER_FILTERS: &[Filter] = &[
    Filter { calls: include_str!("../confine/docker.calls"), listed: Act::Allow, others: EPERM },
    // Of two refusals the later filter's counts.
    Filter { calls: "clone3", listed: ENOSYS, others: Act::Allow },
];
const CONTAINERD_FILTERS: &[Filter] = &[
    Filter {
        calls: include_str!("../confine/containerd.calls"),
        listed: Act::Allow,
        others: EPERM,
    },
    NO_CLONE3,
];
const PODMAN_FILTERS: &[Filter] = &[
    Filter { calls: include_str!("../confine/podman.calls"), listed: Act::Allow, others: ENOSYS },
    Filter { calls: include_str!("../confine/podman.refused"), listed: EPERM, others: Act::Allow },
];
const SERVICE: Filter = Filter {
    calls: include_str!("../confine/system-service.calls"),
    listed: Act::Allow,
    others: Act::Kill,
};
const SERVICE_AND_MOUNTS: Filter = Filter {
    calls: concat!(
        include_str!("../confine/system-service.calls"),
        " fsopen fsconfig fsmount mincore"
    ),
    ..SERVICE
};
const SERVICE_AND_PTRACE: Filter = Filter {
    calls: concat!(include_str!("../confine/system-service.calls"), " ptrace userfaultfd"),
    ..SERVICE
};
/// `RestrictNamespaces=yes`: each namespace, by clone and unshare.
const NO_NAMESPACES: Filter = Filter {
    calls: "setns
        clone/0&0x20000=0x20000 clone/0&0x2000000=0x2000000 clone/0&0x4000000=0x4000000
        clone/0&0x8000000=0x8000000 clone/0&0x10000000=0x10000000 clone/0&0x20000000=0x20000000
        clone/0&0x40000000=0x40000000
        unshare/0&0x20000=0x20000 unshare/0&0x2000000=0x2000000 unshare/0&0x4000000=0x4000000
        unshare/0&0x8000000=0x8000000 unshare/0&0x10000000=0x10000000
        unshare/0&0x20000000=0x20000000 unshare/0&0x40000000=0x40000000",
    listed: EPERM,
    others: Act::Allow,
};
const NO_CLONE3: Filter = Filter { calls: "clone3", listed: ENOSYS, others: Act::Allow };
/// `PrivateDevices=yes`.
const NO_RAW_IO: Filter = Filter { calls: "ioperm iopl", listed: EPERM, others: Act::Allow };

const ROOT: Place = Place {
    name: "root",
    words: "root, no filter",
    user: 0,
    user_namespace: false,
    capabilities: EVERY_CAPABILITY,
    no_new_privileges: false,
    device: Device::Root,
    directory: false,
    advise: false,
    filters: &[],
    huge: true,
    threads: true,
};
const USER: Place = Place {
    name: "user",
    words: "an ordinary user, no filter",
    user: UNPRIVILEGED,
    capabilities: 0,
    ..ROOT
};
const DOCKER_PLACE: Place = Place {
    name: "docker",
    words: "Docker: default profile and capabilities, root",
    capabilities: DOCKER,
    device: Device::Nobody,
    filters: DOCKER_FILTERS,
    huge: false,
    ..ROOT
};
const SERVICE_PLACE: Place = Place {
    name: "service",
    words: "systemd: `SystemCallFilter=@system-service`, `User=`",
    no_new_privileges: true,
    filters: &[SERVICE],
    huge: false,
    threads: false,
    ..USER
};

pub static PLACES: [Place; 17] = [
    ROOT,
    USER,
    Place {
        name: "user-udev",
        words: "the same, `/dev/userfaultfd` given to the user by a rule of udev",
        device: Device::User,
        ..USER
    },
    DOCKER_PLACE,
    Place {
        name: "docker-device",
        words: "the same with `--device /dev/userfaultfd`",
        device: Device::Root,
        ..DOCKER_PLACE
    },
    Place {
        name: "docker-dir",
        words: "Docker, a tmpfs of the host passed in, `ODFORK_IMAGE_DIR`",
        directory: true,
        huge: true,
        ..DOCKER_PLACE
    },
    Place {
        name: "docker-advise",
        words: "Docker, `shmem_enabled` is `advise` on the host",
        advise: true,
        huge: true,
        ..DOCKER_PLACE
    },
    Place {
        name: "docker-empty",
        words: "Docker: default profile, `--cap-drop=ALL`, no-new-privileges, root",
        capabilities: 0,
        no_new_privileges: true,
        ..DOCKER_PLACE
    },
    Place {
        name: "podman",
        words: "Podman rootless: default profile and capabilities, in a user namespace",
        user: UNPRIVILEGED,
        user_namespace: true,
        capabilities: PODMAN,
        filters: PODMAN_FILTERS,
        huge: true,
        threads: false,
        ..DOCKER_PLACE
    },
    Place {
        name: "kubernetes",
        words: "Kubernetes `restricted`: RuntimeDefault (containerd), no capabilities, user 65534",
        user: UNPRIVILEGED,
        capabilities: 0,
        no_new_privileges: true,
        filters: CONTAINERD_FILTERS,
        ..DOCKER_PLACE
    },
    SERVICE_PLACE,
    Place {
        name: "service-udev",
        words: "the same, `/dev/userfaultfd` given to the user by a rule of udev",
        device: Device::User,
        threads: true,
        ..SERVICE_PLACE
    },
    Place {
        name: "service-namespaces",
        words: "`@system-service` with `RestrictNamespaces=yes`",
        filters: &[NO_NAMESPACES, NO_CLONE3, SERVICE],
        ..SERVICE_PLACE
    },
    Place {
        name: "service-devices",
        words: "the same with `PrivateDevices=yes` too",
        device: Device::Nobody,
        filters: &[NO_NAMESPACES, NO_CLONE3, NO_RAW_IO, SERVICE],
        ..SERVICE_PLACE
    },
    Place {
        name: "service-mounts",
        words: "`SystemCallFilter=@system-service fsopen fsconfig fsmount mincore`, `User=`",
        filters: &[SERVICE_AND_MOUNTS],
        huge: true,
        ..SERVICE_PLACE
    },
    Place {
        name: "service-ptrace",
        words: "`SystemCallFilter=@system-service ptrace userfaultfd`, `User=`",
        filters: &[SERVICE_AND_PTRACE],
        threads: true,
        ..SERVICE_PLACE
    },
    Place {
        name: "service-root",
        words: "systemd: `SystemCallFilter=@system-service`, `PrivateDevices=yes`, root",
        capabilities: EVERY_CAPABILITY & !(MKNOD | RAWIO),
        device: Device::Nobody,
        filters: &[NO_RAW_IO, SERVICE],
        huge: false,
        threads: true,
        ..ROOT
    },
];

/// Where the tmpfs that is passed in is mounted, in a mount namespace of the place.
pub const PASSED_IN: &str = "/mnt";

impl Place {
    /// What is set there for every program.
    pub fn environment(&self) -> Option<(&'static str, &'static str)> {
        self.directory.then_some(("ODFORK_IMAGE_DIR", PASSED_IN))
    }
}

/// The place of that name.
pub fn named(name: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.name == name)
}
