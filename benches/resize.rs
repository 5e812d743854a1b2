//! Compares resampling with fast_image_resize on one thread. Megapixels are those of the input.
//!
//!     cargo bench --bench resize
//!
//! `python benches/resize_peers.py` runs Pillow on the same cases.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fast_image_resize as fir;
use hipvit::image::{Filter, RgbImage, resize};

/// Input and output, width and height.
const CASES: [([usize; 2], [usize; 2]); 4] = [
    ([4000, 3000], [224, 224]),
    ([640, 480], [330, 248]),
    ([500, 375], [298, 224]),
    ([64, 64], [224, 224]),
];

const FILTERS: [(Filter, fir::FilterType); 3] = [
    (Filter::Bilinear, fir::FilterType::Bilinear),
    (Filter::Bicubic, fir::FilterType::CatmullRom),
    (Filter::Lanczos, fir::FilterType::Lanczos3),
];

/// Pseudo-random pixels; the time does not depend on them.
fn image(width: usize, height: usize) -> RgbImage {
    let data = (0..width * height * 3)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    RgbImage { width, height, data }
}

fn resizing(criterion: &mut Criterion) {
    for ([width, height], [out_width, out_height]) in CASES {
        let input = image(width, height);
        let size = (width as u32, height as u32);
        let Ok(source) = fir::images::ImageRef::new(size.0, size.1, &input.data, fir::PixelType::U8x3) else {
            continue;
        };
        for (filter, peer_filter) in FILTERS {
            let mut group =
                criterion.benchmark_group(format!("{width}x{height} to {out_width}x{out_height}"));
            group.throughput(Throughput::Elements((width * height) as u64));
            group.sample_size(20).warm_up_time(Duration::from_millis(300));
            group.measurement_time(Duration::from_millis(1000));
            group.bench_function(format!("{filter}/hipvit"), |bencher| {
                bencher.iter(|| resize(black_box(&input), out_width, out_height, filter));
            });
            let mut resizer = fir::Resizer::new();
            let options = fir::ResizeOptions::new().resize_alg(fir::ResizeAlg::Convolution(peer_filter));
            let mut output =
                fir::images::Image::new(out_width as u32, out_height as u32, fir::PixelType::U8x3);
            group.bench_function(format!("{filter}/fast_image_resize"), |bencher| {
                bencher.iter(|| resizer.resize(black_box(&source), &mut output, &options));
            });
            group.finish();
        }
    }
}

criterion_group!(benches, resizing);
criterion_main!(benches);
