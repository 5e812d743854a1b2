//! Exact resampling of images: one pass along either axis, both passes, and nearest.

use super::case::Work;
use super::list::List;
use super::resampling::Resize;
use hipvit::graph::cases::{Scale, image};
use hipvit::image::Filter;
use hipvit::tensor::DType;

pub(super) fn cases(list: &mut List) {
    use Filter::{Bicubic, Bilinear, Box, Hamming, Lanczos, Nearest};
    match list.scale() {
        Scale::Model { every_form: true, .. } => {
            for (filter, input, output) in [
                (Bicubic, [61, 37], [24, 37]),
                (Bicubic, [37, 61], [37, 24]),
                (Nearest, [17, 13], [30, 8]),
            ] {
                resize(list, filter, input, output);
            }
        }
        Scale::Awkward => {
            for (filter, input, output) in [
                (Bicubic, [16, 20], [41, 20]),
                (Bicubic, [20, 15], [20, 33]),
                (Bilinear, [65, 63], [33, 48]),
                (Box, [64, 50], [31, 50]),
                (Hamming, [50, 64], [50, 17]),
                (Lanczos, [63, 49], [65, 64]),
                (Nearest, [1, 1], [7, 5]),
                (Nearest, [257, 197], [64, 63]),
            ] {
                resize(list, filter, input, output);
            }
        }
        Scale::Model { .. } | Scale::Heads => {}
    }
}

fn resize(list: &mut List, filter: Filter, input: [usize; 2], output: [usize; 2]) {
    let resize = Resize {
        input,
        output,
        filter,
    };
    let pixels = image(&[input[1], input[0], 3], DType::U8);
    list.push_work(Work::Resize(resize), vec![pixels], false);
}
