//! Log on standard error. A thread writes the lines, so that a full disk or a blocked pipe delays no request. Lines are
//! dropped if the queue is full or writing fails.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of queued lines.
const QUEUE: usize = 1024;

/// Timeout for writing the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Requests an answer when all earlier lines have been written.
    End(SyncSender<()>),
}

/// Sends lines to the thread that writes them.
#[derive(Clone)]
pub(super) struct Writer(SyncSender<Message>);

/// Waits for the last lines when dropped.
pub(super) struct Flush(SyncSender<Message>);

/// Starts the thread that writes to `output`. If it cannot be started, nothing is written.
pub(super) fn writer(output: impl Write + Send + 'static) -> (Writer, Flush) {
    let (lines, receiver) = sync_channel(QUEUE);
    let thread = thread::Builder::new().name("hipvit-log".into());
    let _ = thread.spawn(move || write_all(&receiver, output));
    (Writer(lines.clone()), Flush(lines))
}

fn write_all(lines: &Receiver<Message>, mut output: impl Write) {
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(line) => {
                let _ = output.write_all(&line).and_then(|()| output.flush());
            }
            Message::End(answer) => {
                let _ = answer.try_send(());
            }
        }
    }
}

impl Write for Writer {
    /// Receives one whole line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(Message::Line(line.to_owned()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let end = Instant::now() + LAST_LINES;
        let (answer, written) = sync_channel(1);
        let mut message = Message::End(answer);
        while let Err(error) = self.0.try_send(message) {
            let TrySendError::Full(full) = error else { return };
            if Instant::now() >= end {
                return;
            }
            message = full;
            thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// An output that forwards, blocks for ever, or fails.
    enum Output {
        Sends(Sender<Vec<u8>>),
        Blocks,
        Fails,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self {
                Self::Sends(lines) => lines.send(bytes.to_owned()).map_err(io::Error::other)?,
                Self::Blocks => loop {
                    thread::park();
                },
                Self::Fails => return Err(io::ErrorKind::StorageFull.into()),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order_before_the_end() {
        let (sender, lines) = channel();
        let (mut writer, flush) = writer(Output::Sends(sender));
        for line in ["one\n", "two\n"] {
            writer.write_all(line.as_bytes()).unwrap();
        }
        drop(flush);
        let written: Vec<Vec<u8>> = lines.try_iter().collect();
        assert_eq!(written, [b"one\n", b"two\n"]);
    }

    #[test]
    fn an_output_that_blocks_or_fails_holds_up_nothing() {
        for output in [Output::Blocks, Output::Fails] {
            let (mut writer, flush) = writer(output);
            for _ in 0..3 * QUEUE {
                writer.write_all(b"line\n").unwrap();
            }
            drop(flush);
        }
    }
}
