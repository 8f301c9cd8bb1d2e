//! The pager's messages, as bytes and as values.

use odfork_pager_protocol::wire::{Kind, Message, MESSAGE_BYTES, VERSION};

/// Every message that is understood says the same when it is said again.
pub fn run(data: &[u8]) {
    for piece in data.chunks(MESSAGE_BYTES) {
        let mut bytes = piece.to_vec();
        let understood = Message::from_bytes(&bytes);
        if piece.len() == MESSAGE_BYTES {
            bytes[..4].copy_from_slice(&VERSION.to_ne_bytes());
            let message = Message::from_bytes(&bytes).expect("the right length and version");
            assert_eq!(message.to_bytes()[..], bytes);
            check(&message);
        }
        assert!(understood.is_none_or(|message| message.to_bytes()[..] == *piece));
    }
}

fn check(message: &Message) {
    let text = message.text();
    assert!(text.len() <= message.text.len() && !text.contains('\0'));
    let again = Message { text: [0; 40], ..*message }.with_text(text.as_bytes());
    assert_eq!(again.text(), text);
    if let Some(kind) = message.kind() {
        assert_eq!(Message::new(kind).kind, message.kind);
        assert_eq!(Kind::from_u32(message.kind), Some(kind));
    }
}
