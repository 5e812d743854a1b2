//! Device code: ELF files and their notes, bundles, fat binaries, PTX.

#![no_main]

use hipvit::hip::Code;
use hipvit_fuzz::within;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    within((1 << 20) + 64 * data.len() as u64, || {
        if let Ok(code) = Code::new(data) {
            for arch in ["gfx942", "gfx1100"] {
                let _ = code.wave_sizes(arch);
            }
            assert_eq!(code.as_bytes(), data);
        }
    });
});
