//! Reads files at offsets. Threads that share a file do not need to share its position.

use std::fs::File;
use std::io;

/// Reads at most the length of `buffer` from `offset` on. Returns the number of bytes, 0 at the end.
///
/// On Windows this changes the position of the file, which only other kinds of reads use.
///
/// # Errors
///
/// Returns an [`io::Error`] if the file cannot be read.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    let read = std::os::unix::fs::FileExt::read_at;
    #[cfg(windows)]
    let read = std::os::windows::fs::FileExt::seek_read;
    read(file, buffer, offset)
}

/// Fills `buffer` from `offset` on.
///
/// # Errors
///
/// Returns the errors of [`read_at`], and [`io::ErrorKind::UnexpectedEof`] if the file ends early.
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match read_at(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn reads_do_not_depend_on_earlier_ones() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut two = [0; 2];
        for offset in [4, 0, 8] {
            read_exact_at(&file, &mut two, offset).unwrap();
            assert_eq!(two, [b'0' + offset as u8, b'1' + offset as u8]);
        }
        assert_eq!(read_at(&file, &mut two, 9).unwrap(), 1);
        assert_eq!(read_at(&file, &mut two, 10).unwrap(), 0);
        let error = read_exact_at(&file, &mut two, 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
