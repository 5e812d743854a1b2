//! TensorBoard's event files: records of TensorFlow with `Event` messages of Protocol Buffers.
//!
//! The formats are those of tensorflow/core/lib/io/record_writer.cc and tensorflow/core/util/event.proto.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hipvit::error::{Error, Result};

use super::events::{EpochEvent, Event, StepEvent};
use super::figures::Figures;
use super::recall::Recall;

/// Beginning of the names of event files. TensorBoard reads the files of a directory in the order of their names.
const PREFIX: &str = "events.out.tfevents.";

/// Writer of an event file.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Creates a file after those in `directory`. TensorBoard then ignores steps of the earlier files after the first `steps` steps.
    pub(super) fn create(directory: &Path, steps: u64) -> Result<Self> {
        let last = last_time(directory).map_err(|error| Error::io(directory, error))?;
        let now = seconds() as u64;
        let time = last.map_or(now, |last| now.max(last + 1));
        let path = directory.join(format!("{PREFIX}{time:010}.hipvit"));
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        let mut events = Self { path, file };
        events.append(0, file_version)?;
        if last.is_some() {
            events.append(steps + 1, session_start)?;
        }
        Ok(events)
    }

    /// Appends the scalars of an event of the log.
    pub(super) fn write(&mut self, event: &Event) -> Result<()> {
        let (step, scalars) = match event {
            Event::Memory(_) | Event::Layer(_) => return Ok(()),
            Event::Step(event) => (event.step, step_scalars(event)),
            Event::Epoch(event) => (event.step, epoch_scalars(event)),
        };
        self.append(step, |event| summary(event, &scalars))
    }

    /// Appends an event with the present time. `content` appends its content.
    fn append(&mut self, step: u64, content: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.file
            .write_all(&record(&message(seconds(), step, content)))
            .map_err(|error| Error::io(&self.path, error))
    }
}

/// Tag and value of a scalar.
type Scalar = (&'static str, f64);

fn step_scalars(event: &StepEvent) -> Vec<Scalar> {
    vec![
        ("train/loss", f64::from(event.loss)),
        ("train/learning_rate", event.lr),
        ("train/gradient_norm", f64::from(event.grad_norm)),
        ("train/images_per_second", event.images_per_second),
    ]
}

fn epoch_scalars(event: &EpochEvent) -> Vec<Scalar> {
    let mut scalars = vec![("epoch/train_loss", event.loss)];
    let recall = |of: fn(&Recall) -> f64| event.recall.as_ref().map(of);
    let optional = [
        ("epoch/train_accuracy", event.train_accuracy),
        ("epoch/val_loss", event.val_loss),
        ("epoch/val_accuracy", event.val_accuracy),
        ("epoch/unaveraged_val_loss", event.unaveraged_val_loss),
        ("epoch/unaveraged_val_accuracy", event.unaveraged_val_accuracy),
        (
            "epoch/character_error_rate",
            event.reading.map(|reading| reading.character_error_rate),
        ),
        (
            "epoch/image_to_text_recall_1",
            recall(|recall| recall.image_to_text_1),
        ),
        (
            "epoch/image_to_text_recall_5",
            recall(|recall| recall.image_to_text_5),
        ),
        (
            "epoch/text_to_image_recall_1",
            recall(|recall| recall.text_to_image_1),
        ),
        (
            "epoch/text_to_image_recall_5",
            recall(|recall| recall.text_to_image_5),
        ),
    ];
    scalars.extend(
        optional
            .into_iter()
            .filter_map(|(tag, value)| Some((tag, value?))),
    );
    let figures = event.figures.iter().flat_map(Figures::scalars);
    scalars.extend(figures);
    scalars
}

/// Returns the time in the name of the newest event file.
fn last_time(directory: &Path) -> std::io::Result<Option<u64>> {
    let mut last = None;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let time = rest.and_then(|rest| rest.split('.').next()?.parse().ok());
        last = last.max(time);
    }
    Ok(last)
}

/// Returns the seconds since 1970.
fn seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

// Numbers of the fields of `Event`, `SessionLog`, `Summary` and `Summary.Value`.
const EVENT_WALL_TIME: u64 = 1;
const EVENT_STEP: u64 = 2;
const EVENT_FILE_VERSION: u64 = 3;
const EVENT_SUMMARY: u64 = 5;
const EVENT_SESSION_LOG: u64 = 7;
const SESSION_LOG_STATUS: u64 = 1;
const SESSION_LOG_START: u64 = 1;
const SUMMARY_VALUE: u64 = 1;
const VALUE_TAG: u64 = 1;
const VALUE_SIMPLE_VALUE: u64 = 2;

// Wire types of Protocol Buffers.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Returns an `Event`. `time` is in seconds since 1970. `content` appends its content.
fn message(time: f64, step: u64, content: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut event = Vec::new();
    varint(&mut event, key(EVENT_WALL_TIME, FIXED64));
    event.extend(time.to_le_bytes());
    if step > 0 {
        varint_field(&mut event, EVENT_STEP, step);
    }
    content(&mut event);
    event
}

/// Appends the version of the format, which the first event of a file has.
fn file_version(event: &mut Vec<u8>) {
    bytes_field(event, EVENT_FILE_VERSION, b"brain.Event:2");
}

/// Appends the start of a session, from whose step on TensorBoard ignores earlier events.
fn session_start(event: &mut Vec<u8>) {
    let mut log = Vec::new();
    varint_field(&mut log, SESSION_LOG_STATUS, SESSION_LOG_START);
    bytes_field(event, EVENT_SESSION_LOG, &log);
}

/// Appends a summary.
fn summary(event: &mut Vec<u8>, scalars: &[Scalar]) {
    let mut summary = Vec::new();
    for &(tag, number) in scalars {
        let mut value = Vec::new();
        bytes_field(&mut value, VALUE_TAG, tag.as_bytes());
        varint(&mut value, key(VALUE_SIMPLE_VALUE, FIXED32));
        value.extend((number as f32).to_le_bytes());
        bytes_field(&mut summary, SUMMARY_VALUE, &value);
    }
    bytes_field(event, EVENT_SUMMARY, &summary);
}

/// Returns the key of a field.
fn key(number: u64, wire_type: u64) -> u64 {
    (number << 3) | wire_type
}

fn bytes_field(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(message, key(number, BYTES));
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint_field(message: &mut Vec<u8>, number: u64, value: u64) {
    varint(message, key(number, VARINT));
    varint(message, value);
}

/// Appends an integer in groups of seven bits, the lowest first.
fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Returns a record: length, checksum of the length, content, checksum of the content.
fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked(crc32c(&length)).to_le_bytes());
    record.extend(content);
    record.extend(masked(crc32c(content)).to_le_bytes());
    record
}

/// Masks a checksum, so that checksums of data with checksums stay useful.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32C (Castagnoli) of `bytes`. Records are short, so it works bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let add_bit = |crc: u32, _| (crc >> 1) ^ (REVERSED_POLYNOMIAL & (crc & 1).wrapping_neg());
    let add_byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), add_bit);
    !bytes.iter().fold(!0, add_byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::log::tests::event;

    /// Check values of the CRC catalogue and of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// Records that TensorFlow's writer writes for these events.
    #[test]
    fn records_are_those_of_tensorflow() {
        let version = record(&message(256.5, 0, file_version));
        let length = [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22];
        let content = b"\x09\0\0\0\0\0\x08\x70\x40\x1a\x0dbrain.Event:2";
        assert_eq!(
            version,
            [&length[..], content, &[0xbc, 0x98, 0x21, 0x2b]].concat()
        );
        let scalar = record(&message(256.5, 1, |event| summary(event, &[("v/1", 1.5)])));
        let length = [0x19, 0, 0, 0, 0, 0, 0, 0, 0x8b, 0xf1, 0x08, 0x28];
        let content = b"\x09\0\0\0\0\0\x08\x70\x40\x10\x01\x2a\x0c\x0a\x0a\x0a\x03v/1\x15\0\0\xc0\x3f";
        assert_eq!(scalar, [&length[..], content, &[0x2c, 0xec, 0xc0, 0x87]].concat());
    }

    #[test]
    fn integers_of_several_bytes_have_the_lowest_bits_first() {
        let mut bytes = Vec::new();
        varint(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
    }

    /// Returns the events of a file without their times. Checks that it consists of whole records.
    fn events(file: &Path) -> Vec<Vec<u8>> {
        let bytes = fs::read(file).unwrap();
        let mut rest = &bytes[..];
        let mut events = Vec::new();
        while !rest.is_empty() {
            let length = usize::try_from(u64::from_le_bytes(rest[..8].try_into().unwrap())).unwrap();
            let content = &rest[12..12 + length];
            assert_eq!(rest[..length + 16], record(content));
            events.push(content[9..].to_vec());
            rest = &rest[length + 16..];
        }
        events
    }

    #[test]
    fn a_resumed_run_starts_a_session_in_a_later_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = EventFile::create(directory.path(), 0).unwrap();
        (1..=3).for_each(|index| first.write(&event(index)).unwrap());
        let mut second = EventFile::create(directory.path(), 2).unwrap();
        second.write(&event(3)).unwrap();
        assert!(first.path.file_name() < second.path.file_name());
        let expected = |step: u64, content: &dyn Fn(&mut Vec<u8>)| message(0.0, step, content)[9..].to_vec();
        let scalars = |index: u64| {
            expected(index, &|event| {
                let scalars = [
                    ("train/loss", 0.5),
                    ("train/learning_rate", 1e-3),
                    ("train/gradient_norm", 1.0),
                    ("train/images_per_second", 10.0),
                ];
                summary(event, &scalars);
            })
        };
        let version = expected(0, &file_version);
        assert_eq!(
            events(&first.path),
            [version.clone(), scalars(1), scalars(2), scalars(3)]
        );
        assert_eq!(
            events(&second.path),
            [version, expected(3, &session_start), scalars(3)]
        );
    }
}
