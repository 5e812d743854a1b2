//! Recognises files whose content does not match their name, such as Git LFS pointers. Errors can then say what the
//! file is and what to do about it.
//!
//! The module depends on no other module. Readers of weights, JSON files, images and lists call it before or after
//! their own checks.

/// Number of bytes from the beginning of a file that [`describe`] needs to recognise every kind of content.
pub const PREFIX: usize = 512;

/// Describes `content` and says what to do about it. Returns `None` for unknown content.
///
/// `content` may be only the beginning of a file. The text completes a sentence that begins with the file's name and
/// "is". JSON and UTF-8 text count as unknown, except HTML, XML and pointers.
///
/// | content | recognised by |
/// | --- | --- |
/// | empty file | no byte |
/// | Git LFS pointer, git-annex pointer, link of a Hugging Face cache as text | first line |
/// | HTML, XML, SVG | first tag |
/// | PyTorch file, NumPy archive, other ZIP archive | name of the first entry |
/// | pickle, NumPy array, HDF5, GGUF, safetensors | magic number |
/// | gzip, bzip2, xz, Zstandard, 7-Zip, tar | magic number |
/// | AppleDouble, AppleSingle | magic number |
/// | PNG, JPEG, GIF, WebP, TIFF, BMP, HEIC, AVIF, MP4, PDF | magic number |
/// | UTF-16, UTF-32 | byte order mark |
pub fn describe(content: &[u8]) -> Option<&'static str> {
    if content.is_empty() {
        return Some("an empty file. Download or copy it again");
    }
    if let Some(wrapper) = pickled(content) {
        return Some(wrapper);
    }
    text(content).or_else(|| with_two_marks(content)).or_else(|| {
        let mut magic = MAGIC.iter();
        let found = magic.find(|(offset, bytes, _)| starts_with(content, *offset, bytes));
        found.map(|(_, _, what)| *what)
    })
}

/// Describes formats that need two marks to be recognised. One mark alone may begin a text, such as a list with `BMW`
/// or `photo_1.WEBP`.
fn with_two_marks(content: &[u8]) -> Option<&'static str> {
    match content {
        _ if is_safetensors(content) => Some("a safetensors file, with the weights of a model"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("a WebP image"),
        // The reserved bytes of the header are 0.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Some("a BMP image"),
        _ => None,
    }
}

/// Returns true if `content` begins like a file that `torch.save` writes: a ZIP archive with a pickle, or a bare
/// pickle.
pub fn is_pytorch(content: &[u8]) -> bool {
    matches!(pickled(content), Some(PYTORCH | PICKLE))
}

/// Returns true if `content` begins like a safetensors file: the length of the header, below 4 GiB, then JSON.
pub fn is_safetensors(content: &[u8]) -> bool {
    starts_with(content, 4, b"\0\0\0\0{\"")
}

const PYTORCH: &str =
    "a PyTorch file (a ZIP archive with a pickle, as torch.save writes .bin, .pt and .pth files)";
const PICKLE: &str = "a Python pickle (as old PyTorch files are)";
const NUMPY_ARCHIVE: &str = "a NumPy archive (.npz)";
const ZIP: &str = "a ZIP archive. Unpack it";

/// Offset, bytes and description of each binary format.
const MAGIC: &[(usize, &[u8], &str)] = &[
    (
        0,
        b"\x00\x05\x16\x07",
        "an AppleDouble file, in which macOS keeps a file's attributes. Use the file of the same name without `._` instead",
    ),
    (
        0,
        b"\x00\x05\x16\x00",
        "an AppleSingle file. Decode it on macOS, or copy the original again",
    ),
    (0, b"\x1f\x8b", "compressed by gzip. Decompress it: gunzip < FILE"),
    (0, b"BZh", "compressed by bzip2. Decompress it: bunzip2 < FILE"),
    (0, b"\xfd7zXZ\x00", "compressed by xz. Decompress it: unxz < FILE"),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "compressed by Zstandard. Decompress it: unzstd < FILE",
    ),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive. Unpack it"),
    (257, b"ustar", "a tar archive. Unpack it: tar xf FILE"),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file (as Keras writes .h5 files)",
    ),
    (0, b"GGUF", "a GGUF file (of llama.cpp)"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"%PDF", "a PDF document. Export its pages as PNG or JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (4, b"ftypheic", "an HEIC image. Convert it to PNG or JPEG"),
    (4, b"ftypheix", "an HEIC image. Convert it to PNG or JPEG"),
    (4, b"ftypmif1", "an HEIF image. Convert it to PNG or JPEG"),
    (4, b"ftypavif", "an AVIF image. Convert it to PNG or JPEG"),
    (
        4,
        b"ftyp",
        "an MP4 or QuickTime video. Extract its frames as PNG or JPEG",
    ),
    (0, b"\xff\xfe\x00\x00", "text in UTF-32. Save it in UTF-8"),
    (0, b"\xff\xfe", "text in UTF-16. Save it in UTF-8"),
    (0, b"\xfe\xff", "text in UTF-16. Save it in UTF-8"),
];

fn starts_with(content: &[u8], offset: usize, bytes: &[u8]) -> bool {
    content.get(offset..).is_some_and(|rest| rest.starts_with(bytes))
}

/// Describes ZIP archives and pickles.
fn pickled(content: &[u8]) -> Option<&'static str> {
    match content {
        [b'P', b'K', 3, 4, ..] => {
            // The length of the first entry's name is at byte 26, the name itself at byte 30.
            let length = content
                .get(26..28)
                .map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
            let name = content.get(30..).unwrap_or_default();
            let name = &name[..name.len().min(length)];
            let ends = |end: &str| name.ends_with(end.as_bytes());
            if ["/data.pkl", "/version", "/byteorder", "/.format_version"]
                .iter()
                .any(|end| ends(end))
            {
                return Some(PYTORCH);
            }
            Some(if ends(".npy") { NUMPY_ARCHIVE } else { ZIP })
        }
        [b'P', b'K', 5 | 7, ..] => Some(ZIP),
        // The opcode PROTO and its protocol number, then an opcode that begins an object.
        [
            0x80,
            2..=5,
            b'}' | b']' | b'(' | b'c' | b'.' | b'X' | b'K' | b'M' | b'N' | 0x8a | 0x8c | 0x95,
            ..,
        ] => Some(PICKLE),
        _ => None,
    }
}

/// Describes text found in place of a binary file, such as pointers, HTML and XML.
fn text(content: &[u8]) -> Option<&'static str> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let start = content.trim_ascii_start();
    let start = &start[..start.len().min(PREFIX)];
    let begins = |prefix: &str| {
        let head = start.get(..prefix.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    let contains = |tag: &[u8]| {
        start
            .windows(tag.len())
            .any(|part| part.eq_ignore_ascii_case(tag))
    };
    if begins("version https://git-lfs.github.com/") || begins("version http://git-media.io/") {
        return Some(
            "a Git LFS pointer, not the file itself. Fetch the file, in the directory of the clone: git lfs pull",
        );
    }
    if begins("/annex/objects/") || (begins("../") && contains(b".git/annex/objects/")) {
        return Some(
            "a git-annex pointer, not the file itself. Fetch the file, in the directory of the clone: git annex get .",
        );
    }
    if begins("../../blobs/") || begins("../../../blobs/") {
        return Some(
            "the text of a link of the Hugging Face cache, not the file itself. Copy the cache with its links, or download again",
        );
    }
    if begins("<svg") || (begins("<?xml") || begins("<!doctype svg")) && contains(b"<svg") {
        return Some("an SVG drawing. Render it to PNG");
    }
    if begins("<!doctype html") || begins("<html") || begins("<head") || begins("<!--") && contains(b"<html")
    {
        return Some(
            "an HTML page, not the file itself: a web site's page about the file, an error or a login. Download the file itself (on the \
             Hugging Face hub the address has /resolve/ instead of /blob/)",
        );
    }
    if begins("<?xml") {
        return Some(
            "an XML document, as storage servers send for errors. Look into it for the reason, and download the file again",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(content: &[u8], expected: &str) {
        let found = describe(content).unwrap_or("unknown");
        assert!(found.starts_with(expected), "{content:?}: {found}");
    }

    /// Returns the header of a ZIP archive whose first entry has the given name.
    fn zip(name: &str) -> Vec<u8> {
        let mut header = b"PK\x03\x04".to_vec();
        header.resize(26, 0);
        header.extend([name.len() as u8, 0, 0, 0]);
        header.extend(name.as_bytes());
        header.extend([0x80; 40]);
        header
    }

    #[test]
    fn content_is_described_by_its_first_bytes() {
        begins(b"", "an empty file");
        begins(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n",
            "a Git LFS pointer",
        );
        begins(
            b"/annex/objects/SHA256E-s5--ab.safetensors\n",
            "a git-annex pointer",
        );
        begins(b"../.git/annex/objects/x/y/SHA256E-s5--ab", "a git-annex pointer");
        begins(b"../../blobs/0123456789abcdef", "the text of a link");
        begins(b"\xef\xbb\xbf\r\n<!DOCTYPE html>\n<html>", "an HTML page");
        begins(b"<HTML><body>", "an HTML page");
        begins(b"<!-- saved --><html>", "an HTML page");
        begins(
            b"<?xml version=\"1.0\"?><Error><Code>AccessDenied",
            "an XML document",
        );
        begins(b"<?xml version=\"1.0\"?>\n<svg width=\"1\">", "an SVG drawing");
        begins(&zip("archive/data.pkl"), "a PyTorch file");
        begins(&zip("pytorch_model/.format_version"), "a PyTorch file");
        begins(&zip("weights.npy"), "a NumPy archive");
        begins(&zip("photos/1.jpg"), "a ZIP archive");
        begins(b"\x80\x02}q\x00(X\x06\x00\x00\x00weight", "a Python pickle");
        begins(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a Python pickle");
        begins(b"\x80\x04\x95\x10\x00", "a Python pickle");
        begins(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X", "an AppleDouble file");
        begins(b"\x1f\x8b\x08\x00", "compressed by gzip");
        begins(b"\xff\xfe{\x00", "text in UTF-16");
        begins(b"\xff\xfe\x00\x00{\x00\x00\x00", "text in UTF-32");
        begins(b"\x40\x00\x00\x00\x00\x00\x00\x00{\"a\":", "a safetensors file");
        begins(b"RIFF\x10\x00\x00\x00WEBPVP8 ", "a WebP image");
        begins(b"BM\x46\x00\x00\x00\x00\x00\x00\x00\x36", "a BMP image");
        begins(b"\x00\x00\x00\x18ftypisom", "an MP4");
        let mut tar = vec![b'a'; 257];
        tar.extend(b"ustar\x0000");
        begins(&tar, "a tar archive");
    }

    #[test]
    fn what_may_be_right_is_not_described() {
        for content in [
            &b"{\"model_type\": \"vit\"}"[..],
            b"  [1]",
            b"{\"size\":{\"height\":224,\"width\":224}}",
            b"{\n  \"a\":{\"b\":1}}",
            b"BMW X5\nAudi A4\n",
            b"photo_1.WEBP\n",
            b"photos/1.jpg\n",
            b"../photos/1.jpg",
            b"\x80\x02",
            b"\x80",
        ] {
            assert_eq!(describe(content), None, "{content:?}");
        }
        assert!(is_pytorch(&zip("archive/data.pkl")) && is_pytorch(b"\x80\x02}q\x00"));
        assert!(!is_pytorch(&zip("photos/1.jpg")) && !is_pytorch(b"{}"));
    }
}
