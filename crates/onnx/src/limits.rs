//! Counts the messages of a file before it is decoded: an empty message takes two bytes in the file, and hundreds in memory.

use crate::error::{Refusal, refuse};

/// Most fields of a file's messages. Models have some thousands.
const MOST_FIELDS: usize = 1 << 22;

/// Deepest nesting of messages, that of the decoder.
const MOST_LEVELS: usize = 100;

/// Messages whose fields are counted.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
}

impl Message {
    /// Returns the message of a field. `None` for a number, a string, or a message without repeated fields.
    fn field(self, number: u64) -> Option<Self> {
        match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6) => Some(Self::Graph),
            (Self::Model, 25) => Some(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Some(Self::Node),
            (Self::Node, 5) | (Self::Function, 11) => Some(Self::Attribute),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) => Some(Self::Tensor),
            _ => None,
        }
    }
}

/// Refuses files with too many messages. Encodings that are not valid are left to the decoder.
pub(crate) fn check(bytes: &[u8]) -> Result<(), Refusal> {
    let mut fields = 0;
    count(bytes, Message::Model, 0, &mut fields)
}

fn count(mut bytes: &[u8], message: Message, level: usize, fields: &mut usize) -> Result<(), Refusal> {
    while let Some(key) = varint(&mut bytes) {
        *fields += 1;
        if *fields > MOST_FIELDS || level > MOST_LEVELS {
            refuse!("has more than {MOST_FIELDS} fields or {MOST_LEVELS} levels of messages");
        }
        let skipped = match key & 7 {
            0 => varint(&mut bytes).map(|_| 0),
            1 => Some(8),
            5 => Some(4),
            2 => varint(&mut bytes).and_then(|length| usize::try_from(length).ok()),
            _ => None,
        };
        let Some((content, rest)) = skipped.and_then(|length| bytes.split_at_checked(length)) else {
            return Ok(());
        };
        if let (2, Some(inner)) = (key & 7, message.field(key >> 3)) {
            count(content, inner, level + 1, fields)?;
        }
        bytes = rest;
    }
    Ok(())
}

/// Takes a number of seven bits per byte.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for index in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_many_empty_messages_are_refused() {
        // Nodes of a graph, and an attribute of each.
        let nodes: Vec<u8> = [0x0a, 2, 0x2a, 0].repeat(MOST_FIELDS / 2 + 1);
        let mut bytes = vec![0x3a];
        let mut length = nodes.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(&nodes);
        assert!(check(&bytes).is_err());
        assert!(check(&bytes[..1000]).is_ok());
        assert!(check(&[0x3a, 4, 0x0a, 2, 0x2a, 0]).is_ok());
    }
}
