//! Results of an interrupted run in `FILE.partial` next to the output, and `--resume`, which continues from them.
//!
//! The file is a list of frames: length, CRC-32, MessagePack. The first frame holds the [`Facts`] of the run. Each
//! other frame holds the result of one image, in the order of the images. An incomplete frame ends the list.
//!
//! A resumed run reads the finished results, passes them to the code that formats new results, and computes the rest.
//! It starts at a batch boundary, so that its batches are those of an uninterrupted run.

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
use super::journal_file::JournalFile;
use super::outcome::{Usage, refused};
use super::output::{self, Sink};

/// Option to continue an interrupted run.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// Continue an interrupted run from FILE.partial
    #[arg(long, requires = "output", help_heading = "Output")]
    resume: bool,
}

/// The file of partial results before the run begins.
pub(crate) struct Partial {
    path: PathBuf,
    /// File of an interrupted run, locked.
    interrupted: Option<File>,
    resume: bool,
}

/// Finished results of an interrupted run, and a file for new results.
pub(crate) struct Journal {
    finished: BufReader<File>,
    /// Number of finished results that have not been read yet.
    unread: usize,
    file: Arc<Mutex<JournalFile>>,
}

/// Result of one image.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) result: ImageResult,
}

/// Outputs of an image, or its error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ImageResult {
    Parts(ItemParts),
    /// Error message.
    Failed(String),
}

/// Size and modification time of an image file, to detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    size: u64,
    modified: Duration,
}

impl Stamp {
    /// Returns the stamp of an image; `None` if it is not an accessible file.
    pub(crate) fn of(source: &Source) -> Option<Self> {
        let Source::File(path) = source else { return None };
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            size: metadata.len(),
            modified: metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?,
        })
    }
}

impl ResumeArgs {
    /// Returns true if an interrupted run is to be continued.
    pub(crate) fn is_given(&self) -> bool {
        self.resume
    }

    /// Finds the partial results of an earlier run for the file in `sink`.
    ///
    /// # Errors
    ///
    /// Returns [`Usage`] if the run would overwrite partial results or another program's file, or if there is no output
    /// file to resume. Returns an error if another process is writing the file.
    pub(crate) fn open(&self, sink: Option<&Sink>) -> Result<Option<Partial>> {
        let Some(sink) = sink else { return Ok(None) };
        let Some(output) = sink.path() else {
            return if self.resume {
                Err(Usage("--resume needs the output file: name it with --output").into())
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

    /// Opens the partial results at `path`, if they exist.
    fn interrupted(&self, path: &Path) -> Result<Option<File>> {
        let opened =
            regular_file::check(path).and_then(|()| OpenOptions::new().read(true).write(true).open(path));
        let file = match opened {
            Ok(file) => file,
            // With `.partial`, the name can be too long. The run then keeps no partial results.
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
                "{path}: this is not a file of partial results. Rename or remove it, or name another output"
            ))
            .into());
        }
        let begun = has_facts && read_frame(&mut reader).map_err(refused(path))?.is_some();
        if begun && !self.resume {
            let path = path.display();
            return Err(Usage(format!(
                "{path}: contains results of an interrupted run. Add --resume to continue it, or remove the file to start again"
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
        // The file system does not support locks.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}

impl Partial {
    /// Starts the run of `sources` in batches of `batch` images. Returns `None` if the run cannot
    /// be resumed: it reads an image from standard input, has a single batch, or the file cannot be created.
    ///
    /// # Errors
    ///
    /// Returns an error if the partial results belong to a different run or an image has changed. Returns the errors of
    /// `facts`, which describes the run.
    pub(crate) fn begin(
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
        // A run of a single batch is quickly repeated.
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

/// Creates the file of partial results with the facts of the run.
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
    /// Creates a journal. `file` holds the first `finished` results of `images` and is positioned behind them.
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

    /// Checks the results in `file`, and drops those of an incomplete batch.
    fn resume(mut file: File, path: &Path, facts: &Facts, sources: &[Source], batch: usize) -> Result<Self> {
        let name = path.display();
        file.rewind().map_err(refused(path))?;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let recorded: Facts = match read_facts(&mut reader)? {
            Some(frame) => decode(&frame)
                .with_context(|| format!("{name}: a different version of hipvit wrote this file"))?,
            None => bail!("{name}: this is not a file of partial results. Remove it to start again"),
        };
        if let Some(difference) = recorded.first_difference(facts) {
            bail!(
                "{name}: this file belongs to a different run: {difference}. Use the same options, or remove the file to start again"
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

    /// Returns the number of finished results that have not been read yet.
    pub(crate) fn unread(&self) -> usize {
        self.unread
    }

    /// Returns the next finished result; `None` if all have been read.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has changed since it was checked.
    pub(crate) fn read(&mut self) -> Result<Option<Recorded>> {
        if self.unread == 0 {
            return Ok(None);
        }
        self.unread -= 1;
        let frame = read_frame(&mut self.finished)?;
        let frame =
            frame.ok_or_else(|| anyhow!("{}: the file was changed", self.file.lock().path.display()))?;
        decode(&frame).map(Some)
    }

    /// Appends the next result.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub(crate) fn record(&self, recorded: &Recorded) -> Result<()> {
        /// Interval between flushes. An interrupted process loses at most the results of one interval.
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
    /// Returns [`hipvit::Error::Io`] if the file cannot be removed.
    pub(crate) fn complete(self) -> Result<()> {
        let mut file = self.file.lock();
        fs::remove_file(&file.path).map_err(refused(&file.path))?;
        file.out = None;
        Ok(())
    }
}

/// Keeps the results of a run that fails.
impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(kept) = self.file.lock().keep() {
            output::note(&kept);
        }
    }
}

impl Recorded {
    /// Checks that this is the result of `source`, and that the image has not changed.
    fn check(&self, path: &Path, source: Option<&Source>) -> Result<()> {
        let (path, name) = (path.display(), &self.name);
        let Some(source) = source.filter(|source| source.name() == *name) else {
            let now = source.map_or_else(|| "no image".into(), Source::name);
            bail!(
                "{path}: this file belongs to a different run: it has {name} where this run has {now}. Name the same images, or remove the file to start again"
            );
        };
        if Stamp::of(source) != self.stamp {
            bail!(
                "{path}: {name} has changed since the results were computed. Remove the file to start again"
            );
        }
        Ok(())
    }
}

/// Returns the length of a frame in bytes.
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

/// Returns the content of the next frame; `None` at the end and at an incomplete frame.
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

/// Maximum size of the first frame. Prevents reading up to 4 GiB from another program's file.
const MAX_FACTS_BYTES: u64 = 1 << 20;

/// Returns the content of the first frame; `None` if the file is not one of partial results.
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

    /// Writes the journal of a run of three images whose process was killed.
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
        // The last batch of a run can be incomplete.
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
        // The missing image now exists.
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
