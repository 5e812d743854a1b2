//! Results of a run that is interrupted, in `FILE.partial` beside the output, and `--resume`, which goes on from them.
//!
//! The file is a list of frames: length, CRC-32, MessagePack. The first frame holds the [`Facts`] of the run, each other frame
//! one image's result, in the order of the images. A frame that was not written as a whole ends the list.
//!
//! A resumed run reads the finished results, passes them to the same code that formats new ones, and computes the rest. It goes on
//! at the beginning of a batch, so that every batch is one that an uninterrupted run has.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use hipvit::pipeline::{ItemParts, Source};
use hipvit_files::regular_file;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::agreement::Facts;
use super::interrupt;
use super::output::{self, Sink};
use super::{Usage, refused};

/// Continuing an interrupted run.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// Continue an interrupted run from FILE.partial beside the output
    #[arg(long, requires = "output", help_heading = "Output")]
    resume: bool,
}

/// The file of partial results, before the run begins.
pub struct Partial {
    path: PathBuf,
    /// The results of an interrupted run, locked.
    interrupted: Option<File>,
    resume: bool,
}

/// The finished results of an interrupted run, and a file for new ones.
pub struct Journal {
    finished: BufReader<File>,
    /// Number of finished images that were not read yet.
    unread: usize,
    file: Arc<Mutex<JournalFile>>,
}

/// The file of a run in progress.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    /// `None` when the run has ended and its output is complete.
    out: Option<BufWriter<File>>,
    recorded: usize,
    images: usize,
    flushed: Instant,
}

/// The result of one image.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    pub name: String,
    pub stamp: Option<Stamp>,
    pub result: ImageResult,
}

/// Results of an image, or its error.
#[derive(Debug, Serialize, Deserialize)]
pub enum ImageResult {
    Parts(ItemParts),
    /// The message of the error.
    Failed(String),
}

/// Size and time of modification of an image file, by which a changed image is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    size: u64,
    modified: Duration,
}

impl Stamp {
    /// The stamp of an image; `None` if it is not a file that can be found.
    pub fn of(source: &Source) -> Option<Self> {
        let Source::File(path) = source else { return None };
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            size: metadata.len(),
            modified: metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?,
        })
    }
}

impl ResumeArgs {
    /// True if an interrupted run is to be continued.
    pub fn is_given(&self) -> bool {
        self.resume
    }

    /// Finds the partial results of an earlier run for the file in `sink`.
    ///
    /// # Errors
    ///
    /// [`Usage`] if results or another program's file would be lost, or if there is no output file to resume. An error if another
    /// process writes the file.
    pub fn open(&self, sink: Option<&Sink>) -> Result<Option<Partial>> {
        let Some(sink) = sink else { return Ok(None) };
        let Some(output) = sink.path() else {
            return if self.resume {
                Err(Usage("--resume continues a file: name it by --output").into())
            } else {
                Ok(None)
            };
        };
        let mut path = output.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        let interrupted = self.interrupted(&path)?;
        if self.resume && interrupted.is_none() {
            let reason = if path.exists() {
                "has no results"
            } else {
                "there is no such file"
            };
            output::note(&format!(
                "{}: {reason}; the run starts with the first image",
                path.display()
            ));
        }
        Ok(Some(Partial {
            path,
            interrupted,
            resume: self.resume,
        }))
    }

    /// The partial results in `path`, if there are some.
    fn interrupted(&self, path: &Path) -> Result<Option<File>> {
        let opened =
            regular_file::check(path).and_then(|()| OpenOptions::new().read(true).write(true).open(path));
        let file = match opened {
            Ok(file) => file,
            // With `.partial` a name may be too long. The run then keeps no results.
            Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidFilename].contains(&error.kind()) => {
                return Ok(None);
            }
            Err(error) => return Err(refused(path)(error).into()),
        };
        lock(&file, path)?;
        let mut reader = BufReader::new(&file);
        let has_facts = read_facts(&mut reader).map_err(refused(path))?.is_some();
        if !has_facts && file.metadata().map_err(refused(path))?.len() > 0 {
            let path = path.display();
            return Err(Usage(format!(
                "{path}: is not a file of partial results. Rename or remove it, or name another output"
            ))
            .into());
        }
        let begun = has_facts && read_frame(&mut reader).map_err(refused(path))?.is_some();
        if begun && !self.resume {
            let path = path.display();
            return Err(Usage(format!(
                "{path}: has results of an interrupted run. Add --resume to continue it, or remove the file to start again"
            ))
            .into());
        }
        Ok(begun.then_some(file))
    }
}

/// Locks the file until it is closed.
fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "{}: another process is writing this file. Wait until it ends",
                path.display()
            )
        }
        // A file system without locks.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}

impl Partial {
    /// Begins the run of `sources` in batches of `batch` images. Returns nothing if the run cannot be resumed and need not be.
    ///
    /// # Errors
    ///
    /// The partial results belong to another run, or an image has changed. Errors of `facts`, which states what the run is.
    pub fn begin(
        self,
        facts: impl FnOnce() -> Result<Facts>,
        sources: &[Source],
        batch: usize,
    ) -> Result<Option<Journal>> {
        if sources.iter().any(|source| matches!(source, Source::Stdin)) {
            return match self.interrupted {
                Some(_) => bail!(
                    "-: an image on standard input cannot be read again; remove {}",
                    self.path.display()
                ),
                None => Ok(None),
            };
        }
        if let Some(file) = self.interrupted {
            return Journal::resume(file, &self.path, &facts()?, sources, batch).map(Some);
        }
        // A run of one batch is as quickly repeated.
        if sources.len() <= batch {
            return Ok(None);
        }
        match create(&self.path, &facts()?) {
            Ok(file) => Journal::new(file, self.path, 0, sources.len()).map(Some),
            Err(error) if self.resume => Err(error),
            Err(error) => {
                output::note(&format!(
                    "this run cannot be resumed if it is interrupted: {error}"
                ));
                Ok(None)
            }
        }
    }
}

/// Creates the file of partial results, with the facts of the run.
fn create(path: &Path, facts: &Facts) -> Result<File> {
    let mut frame = Vec::new();
    write_frame(&mut frame, facts)?;
    if frame.len() as u64 > MAX_FACTS_BYTES {
        bail!("its options exceed {MAX_FACTS_BYTES} bytes");
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let mut file = file.map_err(refused(path))?;
    lock(&file, path)?;
    file.set_len(0)
        .and_then(|()| file.write_all(&frame))
        .map_err(refused(path))?;
    Ok(file)
}

impl Journal {
    /// A journal whose first `finished` results of `images` are in `file`, which is positioned behind them.
    fn new(file: File, path: PathBuf, finished: usize, images: usize) -> Result<Self> {
        let mut reader = BufReader::new(regular_file::open(&path).map_err(refused(&path))?);
        read_facts(&mut reader)?;
        let file = JournalFile {
            path,
            out: Some(BufWriter::with_capacity(1 << 20, file)),
            recorded: finished,
            images,
            flushed: Instant::now(),
        };
        let file = Arc::new(Mutex::new(file));
        interrupt::keep(&file);
        Ok(Self {
            finished: reader,
            unread: finished,
            file,
        })
    }

    /// Checks the results in `file`, and drops the results of an incomplete batch.
    fn resume(mut file: File, path: &Path, facts: &Facts, sources: &[Source], batch: usize) -> Result<Self> {
        let name = path.display();
        file.rewind().map_err(refused(path))?;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let recorded: Facts = match read_facts(&mut reader)? {
            Some(frame) => {
                decode(&frame).with_context(|| format!("{name}: was written by another version of hipvit"))?
            }
            None => bail!("{name}: is not a file of partial results. Remove it to start again"),
        };
        if let Some(difference) = recorded.first_difference(facts) {
            bail!(
                "{name}: belongs to another run: {difference}. Use the same options, or remove the file to start again"
            );
        }
        let (mut images, mut end, mut whole) = (0, reader.stream_position()?, (0, 0));
        whole.1 = end;
        while let Some(frame) = read_frame(&mut reader)? {
            let found: Recorded = decode(&frame).with_context(|| format!("{name}: image {images}"))?;
            found.check(path, sources.get(images))?;
            images += 1;
            end += frame_length(&frame);
            if images % batch == 0 || images == sources.len() {
                whole = (images, end);
            }
        }
        let (finished, end) = whole;
        file.set_len(end).map_err(refused(path))?;
        file.seek(SeekFrom::Start(end)).map_err(refused(path))?;
        output::note(&format!(
            "{name}: {finished} of {} images are finished",
            sources.len()
        ));
        Self::new(file, path.to_owned(), finished, sources.len())
    }

    /// Number of images whose results were finished by an earlier run and not read yet.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// The next finished result; `None` if all were read.
    ///
    /// # Errors
    ///
    /// The file was changed meanwhile.
    pub fn read(&mut self) -> Result<Option<Recorded>> {
        if self.unread == 0 {
            return Ok(None);
        }
        self.unread -= 1;
        let frame = read_frame(&mut self.finished)?;
        let frame =
            frame.ok_or_else(|| anyhow!("{}: the file was changed", self.file.lock().path.display()))?;
        decode(&frame).map(Some)
    }

    /// Adds the next result.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn record(&self, recorded: &Recorded) -> Result<()> {
        /// An interrupted process loses the results of this time at most.
        const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
        let mut file = self.file.lock();
        let JournalFile {
            path,
            out,
            recorded: count,
            flushed,
            ..
        } = &mut *file;
        let Some(out) = out else { return Ok(()) };
        write_frame(out, recorded).with_context(|| path.display().to_string())?;
        *count += 1;
        if flushed.elapsed() >= FLUSH_INTERVAL {
            out.flush().map_err(refused(path))?;
            *flushed = Instant::now();
        }
        Ok(())
    }

    /// Removes the file, because the output is complete.
    ///
    /// # Errors
    ///
    /// [`hipvit::Error::Io`] if the file cannot be removed.
    pub fn complete(self) -> Result<()> {
        let mut file = self.file.lock();
        fs::remove_file(&file.path).map_err(refused(&file.path))?;
        file.out = None;
        Ok(())
    }
}

/// A run that fails keeps its results.
impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(kept) = self.file.lock().keep() {
            output::note(&kept);
        }
    }
}

impl JournalFile {
    /// Ends the file, and removes it if it has no results. Returns a text that says how to go on.
    pub fn keep(&mut self) -> Option<String> {
        let mut out = self.out.take()?;
        let written = out.flush();
        if self.recorded == 0 {
            let _ = fs::remove_file(&self.path);
            return None;
        }
        // Results that could not be written are computed again.
        let part = if written.is_ok() { "" } else { "a part of " };
        Some(format!(
            "{}: has {part}the results of {} of {} images. To continue: {}",
            self.path.display(),
            self.recorded,
            self.images,
            interrupt::resume_command(std::env::args_os())
        ))
    }
}

impl Recorded {
    /// Makes sure that this is the result of `source`, and that the image is as it was.
    fn check(&self, path: &Path, source: Option<&Source>) -> Result<()> {
        let (path, name) = (path.display(), &self.name);
        let Some(source) = source.filter(|source| source.name() == *name) else {
            let now = source.map_or_else(|| "no image".into(), Source::name);
            bail!(
                "{path}: belongs to another run: it has {name} where this run has {now}. Name the same images, or remove the file to start again"
            );
        };
        if Stamp::of(source) != self.stamp {
            bail!("{path}: {name} has changed since. Remove the file to start again");
        }
        Ok(())
    }
}

/// Bytes of a frame in the file.
fn frame_length(content: &[u8]) -> u64 {
    (2 * size_of::<u32>() + content.len()) as u64
}

fn write_frame(out: &mut impl Write, content: &impl Serialize) -> Result<()> {
    let content = rmp_serde::to_vec(content)?;
    let length = u32::try_from(content.len())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&crc32fast::hash(&content).to_le_bytes())?;
    out.write_all(&content)?;
    Ok(())
}

/// The content of the next frame; `None` at the end, and at a frame that was not written as a whole.
fn read_frame(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 8];
    match input.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [length, checksum] =
        [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let mut content = Vec::new();
    input.take(length.into()).read_to_end(&mut content)?;
    let whole = content.len() == length as usize && length > 0 && crc32fast::hash(&content) == checksum;
    Ok(whole.then_some(content))
}

/// Maximum size of the first frame, so that a file of another program is not read as a frame of up to 4 GiB.
const MAX_FACTS_BYTES: u64 = 1 << 20;

/// The content of the first frame; `None` if there is none, as in a file of another program.
fn read_facts(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    read_frame(&mut input.take(MAX_FACTS_BYTES))
}

fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T> {
    Ok(rmp_serde::from_slice(frame)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Recorded {
        Recorded {
            name: name.into(),
            stamp: None,
            result: ImageResult::Failed("damaged".into()),
        }
    }

    fn sources(names: &[&str]) -> Vec<Source> {
        names.iter().map(|name| Source::from(*name)).collect()
    }

    /// A journal of three images that ends as if its process were killed.
    fn killed(path: &Path, torn: &[u8]) -> Result<()> {
        let mut file = create(path, &Facts::default())?;
        for name in ["a", "b", "c"] {
            write_frame(&mut file, &failed(name))?;
        }
        file.write_all(torn)?;
        Ok(())
    }

    fn resume(path: &Path, names: &[&str], batch: usize) -> Result<Journal> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Journal::resume(file, path, &Facts::default(), &sources(names), batch)
    }

    #[test]
    fn whole_batches_are_resumed_and_torn_frames_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.partial");
        for torn in [
            &b""[..],
            b"\x09",
            b"\x04\0\0\0\0\0\0\0abcd",
            b"\xff\0\0\0\0\0\0\0abcd",
            &[0; 40],
        ] {
            killed(&path, torn).unwrap();
            let mut journal = resume(&path, &["a", "b", "c", "d"], 2).unwrap();
            let read: Vec<String> = std::iter::from_fn(|| journal.read().unwrap())
                .map(|found| found.name)
                .collect();
            assert_eq!(read, ["a", "b"]);
            for name in ["c", "d"] {
                journal.record(&failed(name)).unwrap();
            }
            drop(journal);
            let journal = resume(&path, &["a", "b", "c", "d"], 2).unwrap();
            assert_eq!(journal.unread(), 4);
            journal.complete().unwrap();
            assert!(!path.exists());
        }
        // The last batch of a run need not be full.
        killed(&path, b"").unwrap();
        assert_eq!(resume(&path, &["a", "b", "c"], 2).unwrap().unread(), 3);
    }

    #[test]
    fn other_runs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.partial");
        killed(&path, b"").unwrap();
        let error = |names: &[&str]| resume(&path, names, 1).err().unwrap().to_string();
        assert!(error(&["a", "x", "c"]).contains("it has b where this run has x"));
        assert!(error(&["a", "b"]).contains("it has c where this run has no image"));
        let mut facts = Facts::default();
        facts.add("--dtype", "f16");
        let file = File::open(&path).unwrap();
        let other = Journal::resume(file, &path, &facts, &sources(&["a", "b", "c"]), 1);
        assert!(other.err().unwrap().to_string().contains("--dtype"));
        // The image is there now, where it was missing.
        let image = folder.path().join("image");
        let name = image.to_str().unwrap();
        let mut file = create(&path, &Facts::default()).unwrap();
        write_frame(&mut file, &failed(name)).unwrap();
        drop(file);
        fs::write(&image, "now").unwrap();
        assert!(error(&[name]).contains("has changed since"));
    }

    #[test]
    fn files_of_other_programs_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.partial");
        for resume in [false, true] {
            let args = ResumeArgs { resume };
            fs::write(&path, "a download").unwrap();
            let error = args.interrupted(&path).unwrap_err();
            assert!(error.is::<Usage<String>>(), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"a download");
            fs::write(&path, "").unwrap();
            assert!(args.interrupted(&path).unwrap().is_none());
        }
    }

    #[test]
    fn a_long_first_frame_is_not_read() {
        let mut frame = Vec::new();
        write_frame(&mut frame, &"x".repeat(2 << 20)).unwrap();
        assert!(read_frame(&mut &frame[..]).unwrap().is_some());
        assert!(read_facts(&mut &frame[..]).unwrap().is_none());
    }

    #[test]
    fn a_file_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.partial");
        let _writer = create(&path, &Facts::default()).unwrap();
        let other = create(&path, &Facts::default());
        assert!(
            other
                .unwrap_err()
                .to_string()
                .contains("another process is writing")
        );
    }
}
