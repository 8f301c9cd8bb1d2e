//! Messages over the Unix socket (SOCK_SEQPACKET): fixed 64 bytes, descriptors beside them.
//!
//! ```text
//!   program                 supervisor                    daemon
//!   HELLO             ---> creates control, backing, table
//!                     <--- WELCOME id + control, backing, doorbell [, device]
//!   ATTACH id + uffd  --->                           ---> CLIENT id + uffd, backing,
//!                                                      table, control
//!                     <--- TAKEN or REFUSED          <--- TAKEN or REFUSED id
//!   forking:
//!   HELLO parent      ---> the same for the child    ---> CLIENT id of parent, without uffd
//!                     <--- over the parent's own connection: a socket for the child as well,
//!                          before the device
//!   child: ATTACH id  --->                           ---> CLIENT id + uffd
//!   LEASE             ---> stays while this is open
//!                     <--- WELCOME [device]
//!   STATUS, SET       --->                           ---> the same + the socket, for the answer
//! ```
//!
//! The sender is the kernel's word (SCM_CREDENTIALS), never taken from a message.

/// Grows when anything in this crate changes its meaning.
pub const VERSION: u32 = 2;

/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 64;
/// Descriptors with one message.
pub const MAX_FDS: usize = 6;

/// What a message says; the numbers are those on the wire.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program begins, or its parent announces a fork.
    Hello = 1,
    /// The answer: its number, and the files it shares with the daemon.
    Welcome = 2,
    /// Its userfaultfd; the daemon may begin.
    Attach = 3,
    /// Supervisor to daemon: a program, with what belongs to it.
    Client = 4,
    /// Between supervisor and daemon, both ways: a program has ended.
    Gone = 5,
    /// Asks for the daemon's figures.
    Status = 6,
    /// Changes a setting of the daemon.
    Set = 7,
    /// The answer when something cannot be; with the error number.
    Refused = 8,
    /// Supervisor to daemon: the first message, with the store and the doorbell.
    Begin = 9,
    /// Supervisor to daemon: every program that was served before is named.
    Ready = 10,
    /// Daemon by way of the supervisor: the program's faults are served.
    Taken = 11,
    /// Keeps the supervisor running while the connection is open.
    Lease = 12,
}

impl Kind {
    /// The kind of this number, if there is one.
    pub const fn from_u32(value: u32) -> Option<Kind> {
        Some(match value {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Attach,
            4 => Kind::Client,
            5 => Kind::Gone,
            6 => Kind::Status,
            7 => Kind::Set,
            8 => Kind::Refused,
            9 => Kind::Begin,
            10 => Kind::Ready,
            11 => Kind::Taken,
            12 => Kind::Lease,
            _ => return None,
        })
    }
}

/// The one message. Fields that a kind does not name are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// [`VERSION`].
    pub version: u32,
    /// Number of a [`Kind`].
    pub kind: u32,
    /// WELCOME, ATTACH, CLIENT, TAKEN, GONE: the program's number. HELLO: the parent's number when
    /// a fork begins, else 0.
    pub id: u32,
    /// CLIENT: process number. REFUSED: error number.
    pub pid: i32,
    /// WELCOME: `OPTION_*`. CLIENT: the bits below, and the parent's number above [`PARENT_SHIFT`].
    pub flags: u64,
    /// SET: name and value, "name=value", zero-padded. CLIENT: the program's name. REFUSED:
    /// details, or nothing.
    pub text: [u8; 40],
}

/// WELCOME: userfaultfd for user mode only is acceptable.
pub const OPTION_USER_MODE: u64 = 1;
/// CLIENT: a userfaultfd comes first among the descriptors.
pub const WITH_UFFD: u64 = 1;
/// CLIENT: it had been here before the daemon started: take it over.
pub const TAKE_OVER: u64 = 2;
/// CLIENT: the program waits for TAKEN or REFUSED.
pub const WAITS: u64 = 4;
/// CLIENT: from this bit on, the number of the program that forked this one, or 0.
pub const PARENT_SHIFT: u32 = 32;

impl Message {
    /// A message of this kind with no other field.
    pub const fn new(kind: Kind) -> Message {
        Message { version: VERSION, kind: kind as u32, id: 0, pid: 0, flags: 0, text: [0; 40] }
    }

    /// Its bytes as they travel.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0..4].copy_from_slice(&self.version.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.id.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[24..64].copy_from_slice(&self.text);
        bytes
    }

    /// None when the length or the version is another one's.
    pub fn from_bytes(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let mut text = [0; 40];
        text.copy_from_slice(&bytes[24..64]);
        let mut flags = [0; 8];
        flags.copy_from_slice(&bytes[16..24]);
        let message = Message {
            version: u32::from_ne_bytes(word(0)),
            kind: u32::from_ne_bytes(word(4)),
            id: u32::from_ne_bytes(word(8)),
            pid: i32::from_ne_bytes(word(12)),
            flags: u64::from_ne_bytes(flags),
            text,
        };
        (message.version == VERSION).then_some(message)
    }

    /// Its kind, if it is one of this version.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u32(self.kind)
    }

    /// The text up to its first zero byte; empty when it is not UTF-8.
    pub fn text(&self) -> &str {
        let len = self.text.iter().position(|&byte| byte == 0).unwrap_or(self.text.len());
        core::str::from_utf8(&self.text[..len]).unwrap_or("")
    }

    /// As much of `text` as fits.
    pub fn with_text(mut self, text: &[u8]) -> Message {
        let len = text.len().min(self.text.len());
        self.text[..len].copy_from_slice(&text[..len]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_its_bytes() {
        let message = Message { id: 7, pid: -3, flags: 9 << 40, ..Message::new(Kind::Client) };
        let message = message.with_text(b"cluster=16");
        assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        assert_eq!(message.text(), "cluster=16");
        assert_eq!(message.kind(), Some(Kind::Client));
    }

    #[test]
    fn strangers_are_refused() {
        let mut bytes = Message::new(Kind::Hello).to_bytes();
        assert_eq!(Message::from_bytes(&bytes[..63]), None);
        bytes[0] ^= 1;
        assert_eq!(Message::from_bytes(&bytes), None);
        assert_eq!(Kind::from_u32(0), None);
        assert_eq!(Kind::from_u32(99), None);
    }
}
