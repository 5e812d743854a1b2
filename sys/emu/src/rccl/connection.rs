//! A TCP connection between ranks of two processes: frames with a header in JSON and bytes behind it. One thread writes,
//! so that no stream waits for the network before it has to, and one puts what arrives into the rank's mailbox.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use hipvit_sys::rccl::ncclResult_t;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::mailbox::{Key, Mailbox, Message};

/// The longest header; what claims more is no rank.
const HEADER: u32 = 1 << 20;

/// Writes a frame.
pub(super) fn send(stream: &mut TcpStream, header: &impl Serialize, data: &[u8]) -> io::Result<()> {
    let header = serde_json::to_vec(header)?;
    let mut frame = Vec::with_capacity(12 + header.len());
    frame.extend((header.len() as u32).to_le_bytes());
    frame.extend((data.len() as u64).to_le_bytes());
    frame.extend(header);
    stream.write_all(&frame)?;
    stream.write_all(data)
}

/// Reads a frame.
pub(super) fn receive<T: for<'a> Deserialize<'a>>(stream: &mut TcpStream) -> io::Result<(T, Vec<u8>)> {
    let (mut header, mut data) = ([0; 4], [0; 8]);
    stream.read_exact(&mut header)?;
    stream.read_exact(&mut data)?;
    let (header, data) = (u32::from_le_bytes(header), u64::from_le_bytes(data));
    if header > HEADER {
        return Err(io::Error::other("not a rank's message"));
    }
    let mut text = vec![0; header as usize];
    stream.read_exact(&mut text)?;
    let header = serde_json::from_slice(&text)?;
    // Grows with what arrives, whatever the length claims.
    let mut bytes = Vec::new();
    stream.take(data).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != data {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((header, bytes))
}

#[derive(Debug, Serialize, Deserialize)]
enum Header {
    Message(Key, Call),
    /// The sender has failed.
    Failed(String),
    /// The sender will send nothing more.
    Left(String),
}

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    queue: Sender<(Header, Arc<Vec<u8>>)>,
    /// Frames that are not yet in the system's hands.
    pending: Arc<AtomicUsize>,
}

impl Connection {
    /// Starts the threads of a connection to the rank `from`, which messages call `name`.
    pub(super) fn open(
        stream: TcpStream,
        from: usize,
        name: String,
        mailbox: Arc<Mailbox>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let reading = stream.try_clone()?;
        let (queue, queued) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let left = pending.clone();
        let named = |what: &str| thread::Builder::new().name(format!("RCCL {what} {from}"));
        named("to").spawn(move || write(stream, &queued, &left))?;
        named("from").spawn(move || read(reading, from, &name, &mailbox))?;
        Ok(Self { queue, pending })
    }

    fn push(&self, header: Header, data: Arc<Vec<u8>>) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        // Where the other side is gone, the reading thread says so.
        if self.queue.send((header, data)).is_err() {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn put(&self, key: Key, message: Message) {
        self.push(Header::Message(key, message.call), message.data);
    }

    pub(super) fn fail(&self, text: &str) {
        self.push(Header::Failed(text.to_owned()), Arc::default());
    }

    pub(super) fn leave(&self, text: &str) {
        self.push(Header::Left(text.to_owned()), Arc::default());
    }

    /// True if everything was handed to the system, which delivers it even if this process ends.
    pub(super) fn is_flushed(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }
}

/// The writing thread: until the communicator is dropped. After an error it only empties its queue.
fn write(mut stream: TcpStream, queued: &Receiver<(Header, Arc<Vec<u8>>)>, pending: &AtomicUsize) {
    let mut works = true;
    while let Ok((header, data)) = queued.recv() {
        works = works && send(&mut stream, &header, &data).is_ok();
        pending.fetch_sub(1, Ordering::AcqRel);
    }
    let _ = stream.shutdown(Shutdown::Write);
}

fn read(mut stream: TcpStream, from: usize, name: &str, mailbox: &Mailbox) {
    loop {
        match receive(&mut stream) {
            Ok((Header::Message(key, call), data)) => {
                let data = Arc::new(data);
                mailbox.put(from, key, Message { call, data });
            }
            Ok((Header::Failed(text), _)) => {
                mailbox.fail(ncclResult_t::ncclRemoteError, &text);
            }
            Ok((Header::Left(text), _)) => mailbox.leave(from, text),
            Err(error) => {
                let why = match error.kind() {
                    // Reset, if it had not read everything.
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        "its process has ended".to_owned()
                    }
                    _ => error.to_string(),
                };
                return mailbox.leave(from, format!("the connection to {name} is lost: {why}"));
            }
        }
    }
}
