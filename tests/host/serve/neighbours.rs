//! Requests of one client do not harm another.

use std::thread;

use hipvit::{Device, Session};
use serde_json::{Value, json};

use crate::support::server::{LIMIT, Running, base64, options, samples};

/// Returns a request for an image with equal normalised values.
fn values(value: f32) -> Value {
    let data = vec![value; 3 * 32 * 32];
    json!({"inputs": [{"name": "pixel_values", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": data}]})
}

#[test]
fn an_image_whose_results_are_no_numbers_fails_alone() {
    let mut options = options();
    options.instances = vec![Session::builder().device(Device::Cpu).threads(1).strict(true)];
    options.pixel_values = true;
    // All three are one batch.
    options.max_batch = 3;
    options.max_delay = LIMIT;
    options.limits.request_time = LIMIT;
    let running = Running::new(options);
    thread::scope(|scope| {
        let good = [1.0, 2.0].map(|value| {
            let running = &running;
            scope.spawn(move || running.infer(&values(value)))
        });
        let bad = running.infer(&values(3e38));
        let (status, reason) = bad.error();
        assert_eq!(status, 500);
        assert!(reason.starts_with("image 0: `logits`: "), "{reason}");
        for good in good {
            assert_eq!(good.join().unwrap().status, 200);
        }
    });
    // The batch itself has not failed.
    assert_eq!(running.metric("hipvit_retried_images_total"), 0.0);
}

/// Returns a grey progressive JPEG of 64 megapixels with 400 scans of 117 bytes each.
fn many_scans() -> Vec<u8> {
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xFF, 0xC2, 0, 11, 8, 0x1F, 0x40, 0x1F, 0x40, 1, 1, 0x11, 0]);
    for (table, symbol) in [(0x00, 0x00), (0x10, 0xE0)] {
        file.extend([0xFF, 0xC4, 0, 20, table, 1]);
        file.extend([0; 15]);
        file.push(symbol);
    }
    let mut scan = |[first, last, bits]: [u8; 3], bytes: usize| {
        file.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, first, last, bits]);
        file.resize(file.len() + bytes, 0);
    };
    scan([0, 0, 0], 125_000);
    scan([1, 63, 0x01], 117);
    for _ in 0..398 {
        scan([1, 63, 0x10], 117);
    }
    file.extend([0xFF, 0xD9]);
    file
}

#[test]
fn a_jpeg_of_many_scans_is_refused() {
    let running = Running::digits();
    let body = json!({"inputs": [{
        "name": "image",
        "shape": [1],
        "datatype": "BYTES",
        "data": [base64(&many_scans())],
    }]});
    let response = running.infer(&body);
    let (status, reason) = response.error();
    assert_eq!(status, 400, "{reason}");
    assert!(reason.contains("scans pass over its pixels"), "{reason}");
    assert_eq!(running.infer(&samples(&[1])).status, 200);
}
