//! The provider, device buffers, and numbers of every type.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;

use half::{bf16, f16};
use hipvit_sys::hip::hipMemcpyKind;
use hipvit_sys::{Error, Hip, Provider, Status};

/// Sentinel bytes before, between and after a test's data; the library must not write them.
const SENTINEL: u8 = 0xA5;
const MARGIN: usize = 512;

pub(crate) fn provider() -> &'static Provider {
    static PROVIDER: std::sync::OnceLock<Provider> = std::sync::OnceLock::new();
    PROVIDER.get_or_init(|| {
        let test = std::env::current_exe().expect("this program's path");
        let folders = test.ancestors().skip(1).take(2);
        let file = folders
            .map(|folder| folder.join("libhip_emu.so"))
            .find(|file: &PathBuf| file.exists())
            .expect("Cargo builds the library for its tests");
        Provider::named(file.to_str().expect("a path in UTF-8")).expect("the library's path")
    })
}

pub(crate) fn hip() -> &'static Hip {
    provider().hip().expect("HIP")
}

/// Asserts success.
#[track_caller]
pub(crate) fn ok<S: Status>(called: Result<S, Error>) {
    called.expect("the function").ok().expect("success");
}

/// Asserts this status.
#[track_caller]
pub(crate) fn refused<S: Status>(called: Result<S, Error>, status: S) {
    assert_eq!(called.expect("the function"), status);
}

pub(crate) fn synchronize() {
    ok(unsafe { hip().hipDeviceSynchronize() });
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I32,
}

impl Kind {
    pub(crate) fn size(self) -> usize {
        self.encode(0.0).len()
    }

    /// Rounds to the nearest.
    pub(crate) fn encode(self, value: f64) -> Vec<u8> {
        match self {
            Self::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::I8 => (value as i8).to_le_bytes().to_vec(),
            Self::I32 => (value as i32).to_le_bytes().to_vec(),
        }
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> f64 {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        let [first, second, third, fourth, ..] = padded;
        match self {
            Self::F16 => f16::from_le_bytes([first, second]).to_f64(),
            Self::Bf16 => bf16::from_le_bytes([first, second]).to_f64(),
            Self::F32 => f32::from_le_bytes([first, second, third, fourth]).into(),
            Self::F64 => f64::from_le_bytes(padded),
            Self::I8 => i8::from_le_bytes([first]).into(),
            Self::I32 => i32::from_le_bytes([first, second, third, fourth]).into(),
        }
    }

    pub(crate) fn round(self, value: f64) -> f64 {
        self.decode(&self.encode(value))
    }

    /// The largest relative error of rounding to it; 0 for integers.
    pub(crate) fn roundoff(self) -> f64 {
        match self {
            Self::F16 => 2.0_f64.powi(-11),
            Self::Bf16 => 2.0_f64.powi(-8),
            Self::F32 => 2.0_f64.powi(-24),
            Self::F64 => 2.0_f64.powi(-53),
            Self::I8 | Self::I32 => 0.0,
        }
    }

    /// The largest absolute error of rounding a small number.
    fn smallest(self) -> f64 {
        match self {
            Self::F16 => 2.0_f64.powi(-25),
            _ => f64::MIN_POSITIVE,
        }
    }

    /// The type in which sums of products of these are computed.
    pub(crate) fn accumulator(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 | Self::F32 => Self::F32,
            Self::F64 => Self::F64,
            Self::I8 | Self::I32 => Self::I32,
        }
    }
}

/// Numbers of this type, between -1 and 1 or, of integers, -100 and 100; the same in every run.
pub(crate) fn numbers(kind: Kind, count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(12_345);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        if matches!(kind, Kind::I8 | Kind::I32) {
            (unit * 100.0).round()
        } else {
            unit
        }
    };
    (0..count).map(|_| kind.round(next())).collect()
}

/// Device memory with numbers at given places, and sentinels everywhere else.
pub(crate) struct Buffer {
    begin: *mut c_void,
    kind: Kind,
    places: Vec<usize>,
    bytes: Vec<u8>,
}

impl Buffer {
    /// Numbers one after the other.
    pub(crate) fn new(kind: Kind, values: &[f64]) -> Self {
        Self::at(kind, values, (0..values.len()).collect())
    }

    /// Each number at its place.
    pub(crate) fn at(kind: Kind, values: &[f64], places: Vec<usize>) -> Self {
        assert_eq!(values.len(), places.len());
        let size = kind.size();
        let span = places.iter().max().map_or(0, |last| last + 1) * size;
        let mut bytes = vec![SENTINEL; MARGIN + span + MARGIN];
        for (value, place) in values.iter().zip(&places) {
            bytes[MARGIN + place * size..][..size].copy_from_slice(&kind.encode(*value));
        }
        let mut begin = ptr::null_mut();
        ok(unsafe { hip().hipMalloc(&mut begin, bytes.len()) });
        let to_device = hipMemcpyKind::hipMemcpyHostToDevice;
        ok(unsafe { hip().hipMemcpy(begin, bytes.as_ptr().cast(), bytes.len(), to_device) });
        Self {
            begin,
            kind,
            places,
            bytes,
        }
    }

    /// Column-major matrices, columns `leading` apart, and `stride` from one to the next.
    pub(crate) fn matrices(kind: Kind, values: &[f64], shape: Shape) -> Self {
        Self::at(kind, values, shape.places())
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.begin.wrapping_byte_add(MARGIN)
    }

    /// The numbers, after a synchronisation. Asserts that the sentinels are unchanged.
    #[track_caller]
    pub(crate) fn download(&self) -> Vec<f64> {
        synchronize();
        let mut bytes = vec![0; self.bytes.len()];
        let to_host = hipMemcpyKind::hipMemcpyDeviceToHost;
        ok(unsafe { hip().hipMemcpy(bytes.as_mut_ptr().cast(), self.begin, bytes.len(), to_host) });
        let size = self.kind.size();
        let mut rest = bytes.clone();
        let mut values = Vec::new();
        for place in &self.places {
            let at = MARGIN + place * size..MARGIN + (place + 1) * size;
            values.push(self.kind.decode(&bytes[at.clone()]));
            rest[at].fill(SENTINEL);
        }
        let written = rest.iter().position(|byte| *byte != SENTINEL);
        assert_eq!(written, None, "a byte outside the result was written");
        values
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        ok(unsafe { hip().hipFree(self.begin) });
    }
}

/// Column-major matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) leading: usize,
    pub(crate) stride: usize,
    pub(crate) batch: usize,
}

impl Shape {
    /// Matrices with gaps after each column and matrix.
    pub(crate) fn with_gaps(rows: usize, columns: usize, batch: usize) -> Self {
        let leading = rows + 3;
        Self {
            rows,
            columns,
            leading,
            stride: leading * columns + 5,
            batch,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.rows * self.columns * self.batch
    }

    fn places(&self) -> Vec<usize> {
        let mut places = Vec::new();
        for matrix in 0..self.batch {
            for column in 0..self.columns {
                places.extend((0..self.rows).map(|row| matrix * self.stride + column * self.leading + row));
            }
        }
        places
    }

    /// The number of a row and column in a packed batch.
    pub(crate) fn index(&self, matrix: usize, row: usize, column: usize) -> usize {
        (matrix * self.columns + column) * self.rows + row
    }
}

/// Checks results against the expected values, each within its own tolerance plus one rounding to the result's type.
#[track_caller]
pub(crate) fn compare(what: &str, kind: Kind, got: &[f64], expected: &[(f64, f64)]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (index, (got, (expected, tolerance))) in got.iter().zip(expected).enumerate() {
        let rounding = kind.roundoff() * (expected.abs() + tolerance) + kind.smallest();
        let difference = (got - expected).abs();
        assert!(
            difference <= tolerance + rounding,
            "{what}: at {index} {got} instead of {expected}, tolerance {:e}",
            tolerance + rounding
        );
    }
}
