//! Disk cache of compiled code, so that programs do not compile it again at their next start.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hipvit_files::regular_file;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Hash of all that compiled code depends on, 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// The parts' lengths go into it too, so that no two lists give the same bytes.
    pub(super) fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    fn file_name(self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}.{ENDING}")
    }
}

/// A directory of compiled kernels. Processes may share it: files are written atomically, and damaged files are compiled again. If it
/// exceeds its limit, the least recently used files are removed.
#[derive(Clone, Debug)]
pub struct KernelCache {
    folder: PathBuf,
    limit: u64,
}

/// Format of a file: this, the SHA-256 of the key and of what follows, the description's length as a u32, the description, the code.
const MAGIC: &[u8; 16] = b"hipvit kernel 2\n";
const HEADER: usize = MAGIC.len() + 32;
/// Maximum length of a description in bytes.
const DESCRIPTION: usize = 64 << 10;

const ENDING: &str = "code";
/// Extension of unfinished files, also of those whose writer was killed.
const UNFINISHED: &str = "part";

/// Number of bytes that are written to test a directory. On a full disk, an empty file can still be created.
const PROBE: usize = 64 << 10;

/// Default limit. All kernels of a dozen architectures take about 20 MB.
const LIMIT: u64 = 256 << 20;

/// A program in a [`KernelCache`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedKernel {
    /// Name of the program.
    pub program: String,
    /// GPU that it was compiled for: `gfx90a:sramecc+:xnack-`, `sm_90`.
    pub target: String,
    /// Options of the compiler, besides the target.
    pub options: Vec<String>,
    /// Time that the compiler took.
    pub compile_time: Duration,
    /// Bytes of its file.
    pub bytes: u64,
    /// Time of the last use.
    pub used: SystemTime,
}

/// What a file says of its code.
pub(super) struct Description<'a> {
    pub(super) program: &'a str,
    pub(super) target: &'a str,
    pub(super) options: &'a [&'a str],
    pub(super) compile_time: Duration,
}

impl Description<'_> {
    /// Returns one line for each part. One that is too long, or whose lines would be more, is left out.
    fn text(&self) -> String {
        let head = [
            self.program.to_owned(),
            self.target.to_owned(),
            self.compile_time.as_micros().to_string(),
        ];
        let options = self.options.iter().map(|&option| option.to_owned());
        let lines: Vec<String> = head.into_iter().chain(options).collect();
        let text = lines.join("\n");
        let is_whole = text.len() <= DESCRIPTION && lines.iter().all(|line| !line.contains('\n'));
        if is_whole { text } else { String::new() }
    }

    fn parse(text: &str, bytes: u64, used: SystemTime) -> Option<CachedKernel> {
        let mut lines = text.split('\n').map(str::to_owned);
        Some(CachedKernel {
            program: lines.next()?,
            target: lines.next()?,
            compile_time: Duration::from_micros(lines.next()?.parse().ok()?),
            options: lines.collect(),
            bytes,
            used,
        })
    }
}

impl KernelCache {
    /// Creates a cache in this directory, which is created on demand. The default limit is 256 MiB.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            limit: LIMIT,
        }
    }

    /// Sets the limit in bytes.
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Returns the directory of the cache.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of files and their bytes. Temporarily writes as much as a kernel takes, to detect a full disk: kernels that
    /// cannot be stored are compiled at every start.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be read, created or written.
    pub fn usage(&self) -> Result<(usize, u64)> {
        let usage = || {
            fs::create_dir_all(&self.folder)?;
            self.unfinished()?.write_all(&[0; PROBE])?;
            let files = self.files()?;
            Ok((files.len(), files.iter().map(|file| file.bytes).sum()))
        };
        usage().map_err(|error| Error::io(&self.folder, error))
    }

    /// Returns the programs, the last used first. Files of other versions of hipvit are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be read. One that does not exist is empty.
    pub fn kernels(&self) -> Result<Vec<CachedKernel>> {
        let mut files = match self.files() {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io(&self.folder, error)),
        };
        files.sort_by_key(|file| std::cmp::Reverse(file.used));
        Ok(files.iter().filter_map(Kept::describe).collect())
    }

    /// Returns the code of this key. `None` if it is missing or damaged.
    pub(super) fn get(&self, key: Key) -> Option<Vec<u8>> {
        let path = self.folder.join(key.file_name());
        let mut file = regular_file::open(&path).ok()?;
        if file.metadata().ok()?.len() > self.limit {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        if header != Self::header(key, rest) {
            return None;
        }
        let (length, rest) = rest.split_first_chunk()?;
        let (_, code) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        // For the eviction. In a read-only directory nothing is evicted.
        let _ = set_used(&path, &file);
        Some(code.to_vec())
    }

    /// Stores the code of this key, and evicts others if the directory exceeds its limit.
    pub(super) fn put(&self, key: Key, description: &Description<'_>, code: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = self.unfinished()?;
        let text = description.text();
        let rest = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes(), code].concat();
        file.write_all(&Self::header(key, &rest))?;
        file.write_all(&rest)?;
        let path = self.folder.join(key.file_name());
        // Renaming replaces anything but a directory.
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir(&path)?;
        }
        file.persist(path)?;
        self.evict()
    }

    fn header(key: Key, rest: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let (magic, sum) = header.split_at_mut(MAGIC.len());
        magic.copy_from_slice(MAGIC);
        sum.copy_from_slice(&Key::new([&key.0, rest]).0);
        header
    }

    /// Creates a file that is removed unless it is persisted.
    fn unfinished(&self) -> io::Result<tempfile::NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Reduced by the process's umask, so that users can share the directory.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        builder
            .suffix(&format!(".{UNFINISHED}"))
            .tempfile_in(&self.folder)
    }

    fn evict(&self) -> io::Result<()> {
        let mut files = self.files()?;
        files.sort_by_key(|file| std::cmp::Reverse(file.used));
        let mut sum = 0;
        for file in files {
            sum += file.bytes;
            if sum > self.limit {
                match fs::remove_file(&file.path) {
                    // Another process was faster.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the files of the cache. Other files in the directory are ignored.
    fn files(&self) -> io::Result<Vec<Kept>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let own = |ending| ending == ENDING || ending == UNFINISHED;
            if !path.extension().and_then(|e| e.to_str()).is_some_and(own) {
                continue;
            }
            // Another process may have removed the file.
            if let Ok(metadata) = fs::symlink_metadata(&path)
                && metadata.is_file()
            {
                files.push(Kept {
                    bytes: metadata.len(),
                    used: metadata.modified()?,
                    path,
                });
            }
        }
        Ok(files)
    }
}

struct Kept {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Kept {
    /// Returns the file's description. `None` if it has none.
    fn describe(&self) -> Option<CachedKernel> {
        let mut file = regular_file::open(&self.path).ok()?;
        let (mut header, mut length) = ([0; HEADER], [0; 4]);
        file.read_exact(&mut header).ok()?;
        file.read_exact(&mut length).ok()?;
        let length = u32::from_le_bytes(length) as usize;
        if !header.starts_with(MAGIC) || length > DESCRIPTION {
            return None;
        }
        let mut text = vec![0; length];
        file.read_exact(&mut text).ok()?;
        Description::parse(&String::from_utf8(text).ok()?, self.bytes, self.used)
    }
}

/// Sets the time of the last use.
#[cfg(not(windows))]
fn set_used(_: &Path, file: &fs::File) -> io::Result<()> {
    file.set_modified(SystemTime::now())
}

/// Sets the time of the last use. Windows allows this only for files that are open for writing.
#[cfg(windows)]
fn set_used(path: &Path, _: &fs::File) -> io::Result<()> {
    let file = fs::OpenOptions::new().append(true).open(path)?;
    file.set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const PTX: &[u8] = b".version 8.0\n.target sm_90\n";

    const SAXPY: Description<'_> = Description {
        program: "saxpy.hip",
        target: "sm_90",
        options: &["-O3"],
        compile_time: Duration::from_micros(1_234_567),
    };
    /// Bytes of a file of it.
    const FILE: usize = HEADER + 4 + "saxpy.hip\nsm_90\n1234567\n-O3".len() + PTX.len();

    fn key(n: u8) -> Key {
        Key::new([&[n][..]])
    }

    #[test]
    fn keys_tell_parts_apart() {
        let name = |parts: &[&str]| Key::new(parts.iter().map(|p| p.as_bytes())).file_name();
        assert_ne!(name(&["ab", "c"]), name(&["a", "bc"]));
        assert_ne!(name(&["ab"]), name(&["ab", ""]));
        assert_eq!(name(&["ab"]), name(&["ab"]));
        assert_eq!(name(&[]).len(), 64 + 5);
    }

    #[test]
    fn what_was_put_is_got_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path().join("new/kernels"));
        assert!(cache.get(key(1)).is_none());
        cache.put(key(1), &SAXPY, PTX).unwrap();
        cache.get(key(1)).unwrap();
        assert!(cache.get(key(2)).is_none());
        let file = cache.folder.join(key(1).file_name());
        assert_eq!(cache.usage().unwrap(), (1, FILE as u64));

        // Under another key, the contents do not match.
        fs::copy(&file, cache.folder.join(key(2).file_name())).unwrap();
        assert!(cache.get(key(2)).is_none());
    }

    #[test]
    fn programs_are_listed_by_their_last_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path().join("kernels"));
        assert_eq!(cache.kernels().unwrap(), []);
        let lines = Description {
            program: "two\nlines",
            ..SAXPY
        };
        cache.put(key(1), &lines, PTX).unwrap();
        cache.put(key(2), &SAXPY, PTX).unwrap();
        fs::write(cache.folder.join("old.code"), b"hipvit kernel 1\n").unwrap();
        let found = cache.kernels().unwrap();
        let expected = CachedKernel {
            program: "saxpy.hip".into(),
            target: "sm_90".into(),
            options: vec!["-O3".into()],
            compile_time: Duration::from_micros(1_234_567),
            bytes: FILE as u64,
            used: found[0].used,
        };
        assert_eq!(found, [expected]);
        assert_eq!(cache.get(key(1)).as_deref(), Some(PTX));
    }

    #[test]
    fn every_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path());
        cache.put(key(1), &SAXPY, PTX).unwrap();
        let file = cache.folder.join(key(1).file_name());
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&file, &damaged).unwrap();
            assert!(cache.get(key(1)).is_none(), "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(cache.get(key(1)).is_none(), "cut at {at}");
        }
        fs::write(&file, [&whole[..], b"x"].concat()).unwrap();
        assert!(cache.get(key(1)).is_none());
        cache.put(key(1), &SAXPY, PTX).unwrap();
        cache.get(key(1)).unwrap();
    }

    /// Opening a FIFO would block, and a device has no end.
    #[cfg(unix)]
    #[test]
    fn what_is_not_a_regular_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path());
        let file = cache.folder.join(key(1).file_name());
        let fifo = |path: &Path| {
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        };
        let device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        let directory = |path: &Path| fs::create_dir(path).unwrap();
        let makers: [&dyn Fn(&Path); 3] = [&fifo, &device, &directory];
        for make in makers {
            make(&file);
            assert!(cache.get(key(1)).is_none());
            cache.put(key(1), &SAXPY, PTX).unwrap();
            assert_eq!(cache.get(key(1)).as_deref(), Some(PTX));
            fs::remove_file(&file).unwrap();
        }
        // Larger than the limit of the cache.
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(cache.get(key(1)).is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let size = FILE as u64;
        let cache = KernelCache::at(folder.path()).with_limit(3 * size);
        let age = |path: &Path, seconds| {
            let then = SystemTime::now() - Duration::from_secs(seconds);
            File::open(path).unwrap().set_modified(then).unwrap();
        };
        let path = |n| cache.folder.join(key(n).file_name());
        let (foreign, orphan) = (folder.path().join("notes.txt"), folder.path().join("x.part"));
        fs::write(&foreign, [0; 1000]).unwrap();
        fs::write(&orphan, [0; 10]).unwrap();
        age(&orphan, 1000);
        for n in 1..=3 {
            cache.put(key(n), &SAXPY, PTX).unwrap();
            age(&path(n), 100 - u64::from(n));
        }
        assert!(!orphan.exists(), "three files fill it");
        cache.get(key(1)).unwrap();
        cache.put(key(4), &SAXPY, PTX).unwrap();
        let left: Vec<_> = (1..=4).filter(|&n| cache.get(key(n)).is_some()).collect();
        assert_eq!(left, [1, 3, 4]);
        assert!(foreign.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = KernelCache::at(file.join("kernels"));
        assert!(cache.get(key(1)).is_none());
        cache.put(key(1), &SAXPY, PTX).unwrap_err();
        let error = cache.usage().unwrap_err().to_string();
        assert!(error.starts_with(cache.folder.to_str().unwrap()), "{error}");
    }

    /// A full disk accepts names but no bytes. A limit of the process simulates this, so the test runs in its own process.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_takes_no_bytes_is_told() {
        const FOLDER: &str = "HIP_SAFE_TEST_FULL_FOLDER";
        if let Some(folder) = std::env::var_os(FOLDER) {
            KernelCache::at(folder).usage().unwrap_err();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        KernelCache::at(folder.path()).usage().unwrap();
        let test = "rtc::cache::tests::a_folder_that_takes_no_bytes_is_told";
        let output = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn files_have_the_permissions_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(folder.path());
        cache.put(key(1), &SAXPY, PTX).unwrap();
        let usual = folder.path().join("usual");
        fs::write(&usual, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&folder.path().join(key(1).file_name())), mode(&usual));
    }
}
