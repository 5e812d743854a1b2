//! Datasets of the held-out digits, for training.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::at;

/// Writes held-out digits to `directory`, in one subdirectory per digit. There are `each` images of the first `classes`
/// digits, after the first `skip`.
pub(crate) fn write_digits(directory: &Path, classes: usize, skip: usize, each: usize) {
    let bytes = fs::read(at("assets/digits/heldout.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let [images, labels] = ["images", "labels"].map(|name| tensors.tensor(name).unwrap());
    let mut seen = [0; 10];
    for (grey, &digit) in images.data().chunks_exact(32 * 32).zip(labels.data()) {
        let digit = usize::from(digit);
        seen[digit] += 1;
        if digit >= classes || !(skip + 1..=skip + each).contains(&seen[digit]) {
            continue;
        }
        let folder = directory.join(digit.to_string());
        fs::create_dir_all(&folder).unwrap();
        let file = fs::File::create(folder.join(format!("{:02}.png", seen[digit]))).unwrap();
        let mut encoder = png::Encoder::new(file, 32, 32);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(grey).unwrap();
    }
}
