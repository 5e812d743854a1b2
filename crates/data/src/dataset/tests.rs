#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// A BMP of one pixel.
fn bmp(blue: u8) -> Vec<u8> {
    let mut bytes = b"BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
    bytes.extend([0; 24]);
    bytes.extend([blue, 2, 3, 0]);
    bytes
}

fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Returns the label and the blue byte of each image.
fn content(set: &dyn Dataset) -> Vec<(usize, u8)> {
    let blue = |index| set.decode(index, DecodeOptions::default()).unwrap().data[2];
    (0..set.len())
        .map(|index| (set.label(index), blue(index)))
        .collect()
}

fn refused(path: &Path, reasons: &[&str]) {
    let error = open(path).unwrap_err().to_string();
    for reason in reasons {
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn class_folders_are_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(at("dog/2.bmp"), bmp(2));
    write(at("dog/1/x.BMP"), bmp(1));
    write(at("cat/3.bmp"), bmp(3));
    write(at("cat/._3.bmp"), "metadata");
    write(at("cat/note.txt"), "no image");
    write(at(".cache/4.bmp"), bmp(4));
    let splits = open(folder.path()).unwrap();
    assert!(splits.validation.is_none());
    assert_eq!(splits.train.classes(), ["cat", "dog"]);
    assert_eq!(content(&*splits.train), [(0, 3), (1, 1), (1, 2)]);
    assert_eq!(
        splits.train.name(2),
        at("dog").join("2.bmp").display().to_string()
    );
    fs::create_dir(at("emu")).unwrap();
    refused(folder.path(), &["emu: this class has no images"]);
}

#[test]
fn imagenet_has_training_and_validation() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (class, blue) in [("n1", 1), ("n2", 2), ("n3", 3)] {
        write(at(&format!("train/{class}/{class}_1.bmp")), bmp(blue));
    }
    // A class without images for validation does not shift the labels.
    write(at("val/n3/a.bmp"), bmp(30));
    let splits = open(folder.path()).unwrap();
    let validation = splits.validation.unwrap();
    assert_eq!(content(&*splits.train), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(content(&*validation), [(2, 30)]);
    assert_eq!(validation.classes(), ["n1", "n2", "n3"]);
    write(at("val/n4/a.bmp"), bmp(40));
    let class = Path::new("val").join("n4").display().to_string();
    refused(folder.path(), &[&format!("{class}: this class does not occur")]);
}

#[test]
fn folders_without_a_dataset_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("image.bmp"), bmp(0));
    refused(folder.path(), &["no directories of classes"]);
    refused(
        &folder.path().join("image.bmp"),
        &["image.bmp: is neither a directory"],
    );
    refused(&folder.path().join("missing"), &["missing: "]);
}

fn idx(shape: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend(data);
    bytes
}

#[test]
fn idx_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("raw").join(name);
    write(
        at("train-images-idx3-ubyte"),
        idx(&[3, 1, 2], &[1, 2, 3, 4, 5, 6]),
    );
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&idx(&[3], &[2, 0, 1])).unwrap();
    write(at("train-labels-idx1-ubyte.gz"), compressed.finish().unwrap());
    write(at("t10k-images-idx3-ubyte"), idx(&[1, 1, 2], &[7, 8]));
    write(at("t10k-labels-idx1-ubyte"), idx(&[1], &[1]));
    let splits = open(folder.path()).unwrap();
    assert_eq!(splits.train.classes(), ["0", "1", "2"]);
    assert_eq!(content(&*splits.train), [(2, 1), (0, 3), (1, 5)]);
    assert_eq!(content(&*splits.validation.unwrap()), [(1, 7)]);
    let image = splits.train.decode(0, DecodeOptions::default()).unwrap();
    assert_eq!(
        (image.width, image.height, image.data),
        (2, 1, vec![1, 1, 1, 2, 2, 2])
    );

    write(at("t10k-labels-idx1-ubyte"), idx(&[1], &[3]));
    refused(
        folder.path(),
        &["t10k-labels-idx1-ubyte: has class 3, but training has 3 classes"],
    );
    write(at("t10k-labels-idx1-ubyte"), idx(&[2], &[1, 1]));
    refused(
        folder.path(),
        &["t10k-labels-idx1-ubyte: has 2 labels for the 1 images"],
    );
    write(at("t10k-images-idx3-ubyte"), idx(&[9, 1, 2], &[7, 8]));
    refused(folder.path(), &["t10k-images-idx3-ubyte: has 2 bytes of data"]);
    write(at("t10k-images-idx3-ubyte"), idx(&[1], &[7]));
    refused(folder.path(), &["is not an idx file of bytes with 3 dimensions"]);
    fs::remove_file(at("t10k-labels-idx1-ubyte")).unwrap();
    refused(folder.path(), &["t10k-images-idx3-ubyte: has no file of labels"]);
}

/// Returns a tar archive, as GNU tar writes it.
fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |name: &str, kind: u8, content: &[u8]| {
        let mut header = [0; 512];
        let short = &name.as_bytes()[..name.len().min(100)];
        header[..short.len()].copy_from_slice(short);
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    };
    for (name, content) in files {
        match name.strip_prefix("pax:") {
            Some(name) => {
                let record = format!(" path={name}\n");
                let length = record.len() + 3;
                add("header", b'x', format!("{length}{record}").as_bytes());
                add("short", b'0', content);
            }
            None if name.len() > 100 => {
                add("././@LongLink", b'L', format!("{name}\0").as_bytes());
                add(name, b'0', content);
            }
            None => add(name, if name.ends_with('/') { b'5' } else { b'0' }, content),
        }
    }
    bytes.extend([0; 1024]);
    bytes
}

#[test]
fn web_dataset_shards_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let long = format!("{}/b.v1", "d".repeat(120));
    let (image, label) = (format!("{long}.bmp"), format!("{long}.cls"));
    let pax = format!("pax:{}", "p".repeat(200));
    let (pax_image, pax_label) = (format!("{pax}.bmp"), format!("{pax}.json"));
    let shard = [
        ("d/", Vec::new()),
        ("d/a.cls", b"1\n".to_vec()),
        ("d/a.bmp", bmp(10)),
        ("d/a.txt", b"caption".to_vec()),
        ("d/only.txt", b"no image".to_vec()),
        (&image, bmp(20)),
        (&label, b"0".to_vec()),
        (&pax_image, bmp(30)),
        (&pax_label, br#"{"label": 2}"#.to_vec()),
    ];
    write(at("set-train-000000.tar"), archive(&shard));
    write(
        at("set-train-000001.tar"),
        archive(&[("z.bmp", bmp(40)), ("z.cls", b"1".to_vec())]),
    );
    write(
        at("set-val-000000.tar"),
        archive(&[("v.bmp", bmp(50)), ("v.cls", b"2".to_vec())]),
    );
    write(
        at("set-test-000000.tar"),
        archive(&[("t.bmp", bmp(60)), ("t.cls", b"2".to_vec())]),
    );
    let splits = open(folder.path()).unwrap();
    assert_eq!(content(&*splits.train), [(1, 10), (0, 20), (2, 30), (1, 40)]);
    assert_eq!(splits.train.classes(), ["0", "1", "2"]);
    assert_eq!(content(&*splits.validation.unwrap()), [(2, 50)]);
    let name = splits.train.name(3);
    assert!(name.ends_with("set-train-000001.tar/z.bmp"), "{name}");

    let alone = at("alone.tar");
    for (files, reason) in [
        (archive(&[("a.bmp", bmp(1))]), "a: has an image but no label"),
        (
            archive(&[("a.bmp", bmp(1)), ("a.json", b"{".to_vec())]),
            "a.json: EOF",
        ),
        (
            archive(&[("a.bmp", bmp(1)), ("a.json", br#"{"label": -1}"#.to_vec())]),
            "a.json: its label is -1",
        ),
        (
            archive(&[("a.bmp", bmp(1)), ("a.cls", Vec::new())]),
            "a.cls: is empty",
        ),
        (archive(&[]), "contains no images"),
        (archive(&shard)[..2050].to_vec(), "ends before"),
        (vec![7; 2048], "is not a tar archive"),
    ] {
        write(&alone, files);
        refused(&alone, &["alone.tar: ", reason]);
    }
}

#[test]
fn web_dataset_labels_can_be_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shard = |class: &str, blue| archive(&[("x.bmp", bmp(blue)), ("x.cls", class.as_bytes().to_vec())]);
    write(at("train-0.tar"), shard("dog", 1));
    write(at("train-1.tar"), shard("cat", 2));
    write(at("val-0.tar"), shard("dog", 3));
    let splits = open(folder.path()).unwrap();
    assert_eq!(splits.train.classes(), ["cat", "dog"]);
    assert_eq!(content(&*splits.train), [(1, 1), (0, 2)]);
    assert_eq!(content(&*splits.validation.unwrap()), [(1, 3)]);
    write(at("val-0.tar"), shard("emu", 3));
    refused(folder.path(), &["val-0.tar: x.bmp: its class does not occur"]);
    write(at("val-0.tar"), shard("1", 3));
    write(at("train-1.tar"), shard("1", 3));
    refused(folder.path(), &["some labels are numbers"]);
}

/// Returns the caption and the blue byte of each image.
fn captioned(set: &dyn Dataset) -> Vec<(&str, u8)> {
    assert!(set.has_captions());
    let images = content(set).into_iter();
    images
        .map(|(label, blue)| (set.classes()[label].as_str(), blue))
        .collect()
}

#[test]
fn web_dataset_shards_have_captions_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = |text: &str| text.as_bytes().to_vec();
    let train = archive(&[
        ("a.bmp", bmp(1)),
        ("a.json", text(r#"{"caption": "not read", "key": 1}"#)),
        ("a.txt", text(" a dog\n")),
        ("b.txt", text("a cat")),
        ("b.bmp", bmp(2)),
        ("c.bmp", bmp(3)),
        ("c.txt", text("a dog")),
    ]);
    write(at("train-0.tar"), train);
    write(
        at("val-0.tar"),
        archive(&[("x.bmp", bmp(9)), ("x.txt", text("a fish"))]),
    );
    let splits = open(folder.path()).unwrap();
    assert_eq!(
        captioned(&*splits.train),
        [("a dog", 1), ("a cat", 2), ("a dog", 3)]
    );
    assert_eq!(captioned(&*splits.validation.unwrap()), [("a fish", 9)]);
    write(
        at("val-0.tar"),
        archive(&[("x.bmp", bmp(9)), ("x.cls", text("0"))]),
    );
    refused(folder.path(), &["captions in some shards"]);
    let alone = at("alone.tar");
    for (content, reason) in [
        (
            vec![("x.bmp", bmp(9)), ("x.txt", text(" \n"))],
            "x.txt: the caption is empty",
        ),
        (
            vec![("x.bmp", bmp(9)), ("x.txt", vec![0xff])],
            "x.txt: is not UTF-8",
        ),
        (
            vec![
                ("x.bmp", bmp(9)),
                ("x.txt", text("a")),
                ("y.bmp", bmp(9)),
                ("y.cls", text("a")),
            ],
            "has captions (.txt) for some images",
        ),
    ] {
        write(&alone, archive(&content));
        refused(&alone, &["alone.tar: ", reason]);
    }
}

#[test]
fn lists_have_images_with_captions() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for blue in 1..=3 {
        write(at(&format!("images/{blue}.bmp")), bmp(blue));
    }
    let csv = "\u{feff}id,filepath,title\n7,images/2.bmp,\"a cat, asleep\"\n8,images/1.bmp,a dog\n";
    // open_clip's default separator is a tab, whatever the name.
    let tabs = "title\tfilepath\na cat, asleep\timages/2.bmp\na dog\timages/1.bmp\n";
    let lines = "{\"file_name\": \"images/2.bmp\", \"text\": \"a cat, asleep\"}\n\n{\"text\": \"a dog\", \"image\": \"images/1.bmp\"}\n";
    let expected = [("a cat, asleep", 2), ("a dog", 1)];
    for (name, content) in [
        ("a.csv", csv),
        ("b.csv", tabs),
        ("c.tsv", tabs),
        ("d.jsonl", lines),
    ] {
        write(at(name), content);
        assert_eq!(captioned(&*open(at(name)).unwrap().train), expected, "{name}");
    }
    // Lists in a directory have the names of splits. Others do not count.
    let set = at("set");
    write(
        set.join("train.csv"),
        "image,caption\n../images/1.bmp,one\n../images/1.bmp,again\n",
    );
    write(set.join("val.csv"), "image,caption\n../images/3.bmp,three\n");
    write(set.join("notes.csv"), "a,b\n");
    let splits = open(&set).unwrap();
    assert_eq!(captioned(&*splits.train), [("one", 1), ("again", 1)]);
    assert_eq!(captioned(&*splits.validation.unwrap()), [("three", 3)]);
    // A test set is used only if there is no other.
    write(set.join("test.csv"), "image,caption\n../images/2.bmp,two\n");
    assert_eq!(
        captioned(&*open(&set).unwrap().validation.unwrap()),
        [("three", 3)]
    );
    write(set.join("train.jsonl"), lines);
    refused(&set, &["several lists for training: train.csv and train.jsonl"]);
}

/// The layout of `ImageFolder` of Hugging Face's datasets, with a list in the directory of each split.
#[test]
fn lists_in_the_directories_of_splits_are_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (split, text) in [("train", "one"), ("validation", "two"), ("test", "three")] {
        fs::create_dir(at(split)).unwrap();
        fs::write(at(&format!("{split}/1.bmp")), bmp(1)).unwrap();
        let line = format!("{{\"file_name\": \"1.bmp\", \"text\": \"{text}\"}}\n");
        write(at(&format!("{split}/metadata.jsonl")), &line);
    }
    let splits = open(folder.path()).unwrap();
    assert_eq!(captioned(&*splits.train), [("one", 1)]);
    assert_eq!(captioned(&*splits.validation.unwrap()), [("two", 1)]);
    fs::remove_dir_all(at("validation")).unwrap();
    assert_eq!(
        captioned(&*open(folder.path()).unwrap().validation.unwrap()),
        [("three", 1)]
    );
    write(at("train/metadata.csv"), "file_name,text\n1.bmp,one\n");
    refused(
        folder.path(),
        &["several lists of images: metadata.csv and metadata.jsonl"],
    );
}

/// ImageNet's competition has tables of labels beside its directories.
#[test]
fn tables_beside_directories_of_classes_are_not_lists() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["cat", "dog"] {
        let directory = folder.path().join(class);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("1.bmp"), bmp(1)).unwrap();
    }
    write(folder.path().join("train_labels.csv"), "id,label\n1,cat\n");
    write(
        folder.path().join("LOC_val_solution.csv"),
        "ImageId,PredictionString\n",
    );
    let splits = open(folder.path()).unwrap();
    assert!(!splits.train.has_captions());
    assert_eq!(splits.train.classes(), ["cat", "dog"]);
}

#[test]
fn what_is_wrong_with_a_list_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.csv");
    for (content, reasons) in [
        ("filepath,title\n", &["pairs.csv: has no pairs"][..]),
        (
            "filepath,label\n1.bmp,2\n",
            &[
                "no columns of images (filepath, ",
                "its columns are filepath, label",
            ],
        ),
        (
            "filepath,title\n1.bmp,a\n2.bmp,  \n",
            &["pairs.csv: line 3: the caption is empty"],
        ),
        ("filepath,title\n,a\n", &["line 2: there is no path"]),
        ("filepath,title\n1.bmp\n", &["pairs.csv: ", "record 1", "fields"]),
    ] {
        write(&path, content);
        refused(&path, reasons);
    }
    let path = folder.path().join("pairs.jsonl");
    write(&path, "{\"image\": \"1.bmp\", \"text\": \"a\"}\n{\"image\": 7}\n");
    refused(
        &path,
        &["pairs.jsonl: line 2: has no columns", "its columns are image"],
    );
    write(&path, "{\"image\": \"1.bmp\", \"text\": \"a\"}\n");
    let train = open(&path).unwrap().train;
    let error = train.read(0).unwrap_err().to_string();
    assert!(
        error.contains("1.bmp") && error.contains("(os error 2)"),
        "{error}"
    );
}

#[test]
fn damaged_archives_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    let pax = format!("pax:{}.bmp", "p".repeat(200));
    let bytes = archive(&[
        (&pax, bmp(1)),
        ("a.bmp", bmp(1)),
        ("a.json", br#"{"label": 1}"#.to_vec()),
    ]);
    let mut state = 1u64;
    for _ in 0..500 {
        let mut damaged = bytes.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % damaged.len();
            damaged[at] = (state >> 20) as u8;
        }
        // Repair the sum of the first header, so that its fields are read.
        damaged[148..156].fill(b' ');
        let sum: u32 = damaged[..512].iter().map(|&byte| u32::from(byte)).sum();
        damaged[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        write(&path, damaged);
        let _ = tar::list(&mut File::open(&path).unwrap());
        let _ = open(&path);
    }
}

#[test]
fn arrays_in_memory_are_checked() {
    let classes = vec!["a".to_owned()];
    let set = |pixels, labels| InMemory::new("x", [1, 2], vec![0; pixels], labels, classes.clone());
    assert_eq!(set(4, vec![0, 0]).unwrap().len(), 2);
    assert_eq!(set(12, vec![0, 0]).unwrap().name(1), "x#1");
    assert!(set(5, vec![0, 0]).is_err());
    assert!(set(0, vec![]).is_err());
    assert!(
        set(4, vec![0, 1])
            .unwrap_err()
            .to_string()
            .contains("1 is not one of 1 classes")
    );
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use super::*;
    use ::parquet::basic::Compression;
    use ::parquet::column::writer::ColumnWriter;
    use ::parquet::data_type::ByteArray;
    use ::parquet::file::metadata::KeyValue;
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    const SCHEMA: &str = "message schema {
        OPTIONAL group image { OPTIONAL BYTE_ARRAY bytes; OPTIONAL BYTE_ARRAY path (UTF8); }
        OPTIONAL INT64 label;
    }";

    /// Writes row groups of images and labels with several pages each, as `datasets` does.
    fn write_table(path: &Path, names: &str, groups: &[&[(u8, i64)]]) {
        let features = format!(
            r#"{{"info": {{"features": {{"image": {{"_type": "Image"}}, "label": {{"names": {names}, "_type": "ClassLabel"}}}}}}}}"#
        );
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_data_page_row_count_limit(2)
            .set_write_batch_size(1)
            .set_key_value_metadata(Some(vec![KeyValue::new("huggingface".into(), features)]))
            .build();
        let schema = parse_message_type(SCHEMA).unwrap().into();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties.into()).unwrap();
        for rows in groups {
            let images: Vec<ByteArray> = rows.iter().map(|&(blue, _)| bmp(blue).into()).collect();
            let labels: Vec<i64> = rows.iter().map(|&(_, label)| label).collect();
            let mut group = writer.next_row_group().unwrap();
            let mut index = 0;
            while let Some(mut column) = group.next_column().unwrap() {
                match column.untyped() {
                    ColumnWriter::ByteArrayColumnWriter(column) if index == 0 => {
                        column
                            .write_batch(&images, Some(&vec![2; rows.len()]), None)
                            .unwrap();
                    }
                    ColumnWriter::ByteArrayColumnWriter(column) => {
                        column.write_batch(&[], Some(&vec![1; rows.len()]), None).unwrap();
                    }
                    ColumnWriter::Int64ColumnWriter(column) => {
                        column
                            .write_batch(&labels, Some(&vec![1; rows.len()]), None)
                            .unwrap();
                    }
                    _ => panic!("no such column"),
                }
                column.close().unwrap();
                index += 1;
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    /// Writes images with captions. A `None` is a missing caption.
    fn write_captions(path: &Path, column: &str, rows: &[(u8, Option<&str>)]) {
        let schema = format!(
            "message schema {{ OPTIONAL group image {{ OPTIONAL BYTE_ARRAY bytes; }} OPTIONAL BYTE_ARRAY {column} (UTF8); }}"
        );
        let schema = parse_message_type(&schema).unwrap().into();
        let mut writer = SerializedFileWriter::new(
            File::create(path).unwrap(),
            schema,
            WriterProperties::default().into(),
        )
        .unwrap();
        let mut group = writer.next_row_group().unwrap();
        let images: Vec<ByteArray> = rows.iter().map(|&(blue, _)| bmp(blue).into()).collect();
        let captions: Vec<ByteArray> = rows.iter().filter_map(|&(_, text)| Some(text?.into())).collect();
        let present: Vec<i16> = rows.iter().map(|(_, text)| i16::from(text.is_some())).collect();
        let mut columns = [(images, vec![2; rows.len()]), (captions, present)].into_iter();
        while let Some(mut column) = group.next_column().unwrap() {
            let (values, levels) = columns.next().unwrap();
            if let ColumnWriter::ByteArrayColumnWriter(column) = column.untyped() {
                column.write_batch(&values, Some(&levels), None).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn parquet_files_have_captions_without_labels() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let rows = [(1, Some("a dog")), (2, Some(" a cat ")), (3, Some("a dog"))];
        write_captions(&at("train-0.parquet"), "text", &rows);
        write_captions(&at("train-1.parquet"), "caption", &[(4, Some("a bird"))]);
        write_captions(&at("val-0.parquet"), "text", &[(5, Some("a fish"))]);
        let splits = open(folder.path()).unwrap();
        let expected = [("a dog", 1), ("a cat", 2), ("a dog", 3), ("a bird", 4)];
        assert_eq!(captioned(&*splits.train), expected);
        assert_eq!(captioned(&*splits.validation.unwrap()), [("a fish", 5)]);
        write_captions(&at("train-0.parquet"), "text", &[(1, Some("a dog")), (2, None)]);
        refused(folder.path(), &["train-0.parquet: image 1: the caption is empty"]);
        write_captions(&at("train-0.parquet"), "words", &rows);
        refused(
            folder.path(),
            &["no column of labels (`label`) or captions (title, caption, text)"],
        );
    }

    #[test]
    fn parquet_is_read_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("data").join(name);
        let names = r#"["cat", "dog"]"#;
        let groups: [&[_]; 2] = [&[(1, 0), (2, 1), (3, 1), (4, 0), (5, 1)], &[(6, 0), (7, 1)]];
        write_table(&at("train-00000-of-00002.parquet"), names, &groups);
        write_table(&at("train-00001-of-00002.parquet"), names, &[&[(8, 1)]]);
        write_table(&at("test-00000-of-00001.parquet"), names, &[&[(9, 0)]]);
        let splits = open(folder.path()).unwrap();
        let set = &*splits.train;
        assert_eq!(set.classes(), ["cat", "dog"]);
        let expected = [(0, 1), (1, 2), (1, 3), (0, 4), (1, 5), (0, 6), (1, 7), (1, 8)];
        assert_eq!(content(set), expected);
        assert_eq!(content(&*splits.validation.unwrap()), [(0, 9)]);
        // Threads share the files.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..20).for_each(|_| assert_eq!(content(set), expected)));
            }
        });
        let name = set.name(7);
        assert!(name.ends_with("train-00001-of-00002.parquet#0"), "{name}");

        write_table(&at("test-00000-of-00001.parquet"), names, &[&[(9, 2)]]);
        refused(
            folder.path(),
            &["test-00000-of-00001.parquet: has class 2, but training has 2 classes"],
        );
        write_table(&at("test-00000-of-00001.parquet"), names, &[&[(9, -1)]]);
        refused(folder.path(), &["image 0: -1 is not a class"]);
        write(at("test-00000-of-00001.parquet"), "PAR1");
        refused(folder.path(), &["test-00000-of-00001.parquet: "]);
    }
}
