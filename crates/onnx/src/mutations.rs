//! Loads thousands of damaged models: each is an error or a graph, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use prost::Message as _;

use crate::proto::tensor_shape_proto::dimension;
use crate::proto::{ModelProto, NodeProto, TensorProto};
use crate::{Error, Options, load_bytes};

/// Number of damaged models, if the environment does not set another.
const COUNT: usize = 400;

/// Sets the number of damaged models.
const COUNT_VARIABLE: &str = "HIPVIT_ONNX_MUTATIONS";

/// Longest time to load a damaged model of at most 100 kB. A debug build on a busy machine takes far less.
const LONGEST: Duration = Duration::from_secs(60);

/// Numbers that are edges of some check.
const EXTREMES: [i64; 14] = [
    0,
    1,
    -1,
    2,
    7,
    -7,
    255,
    1 << 16,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

/// A generator of numbers, the same on every run. <https://prng.di.unimi.it/splitmix64.c>
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn extreme(&mut self) -> i64 {
        EXTREMES[self.below(EXTREMES.len())]
    }

    /// Returns a random element. `None` if there are none.
    fn pick<'a, T>(&mut self, all: &'a mut [T]) -> Option<&'a mut T> {
        if all.is_empty() {
            return None;
        }
        let index = self.below(all.len());
        all.get_mut(index)
    }
}

/// Returns the small models of the goldens.
fn models() -> Vec<(String, Vec<u8>)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden"));
    let of_exports = std::fs::read_dir(root.join("onnx"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("model.onnx"));
    let of_operators = std::fs::read_dir(root.join("onnx_ops"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    let mut models: Vec<(String, Vec<u8>)> = of_exports
        .chain(of_operators)
        .filter_map(|path| {
            let bytes = std::fs::read(&path).ok()?;
            (bytes.len() < 200_000).then(|| (path.display().to_string(), bytes))
        })
        .collect();
    models.sort();
    models
}

/// Changes bytes of the file.
fn damage_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let (start, len) = (random.below(bytes.len()), 1 + random.below(16));
        let end = (start + len).min(bytes.len());
        match random.below(5) {
            0 => bytes[start] ^= 1 << random.below(8),
            1 => bytes[start] = random.next() as u8,
            2 => drop(bytes.drain(start..end)),
            3 => {
                let copy = bytes[start..end].to_vec();
                bytes.splice(start..start, copy);
            }
            _ => bytes.truncate(start.max(1)),
        }
        if bytes.is_empty() {
            return;
        }
    }
}

fn damage_tensor(random: &mut Random, tensor: &mut TensorProto) {
    match random.below(5) {
        0 => tensor.data_type = random.below(24) as i32,
        1 => tensor.dims.push(random.extreme()),
        2 => drop(tensor.dims.pop()),
        3 => {
            let mut raw = tensor.raw_data.to_vec();
            let value = random.extreme().to_le_bytes();
            for (to, from) in raw.iter_mut().zip(value) {
                *to = from;
            }
            tensor.raw_data = raw.into();
        }
        _ => {
            let extreme = random.extreme();
            if let Some(dim) = random.pick(&mut tensor.dims) {
                *dim = extreme;
            }
        }
    }
}

fn damage_node(random: &mut Random, node: &mut NodeProto, other: &NodeProto) {
    let extreme = random.extreme();
    match random.below(8) {
        0 => node.op_type.clone_from(&other.op_type),
        1 => {
            if let (Some(input), Some(name)) = (random.pick(&mut node.input), other.input.first()) {
                input.clone_from(name);
            }
        }
        2 => drop(node.input.pop()),
        3 => node.input.extend(other.output.first().cloned()),
        4 => node.attribute.clone_from(&other.attribute),
        5 => drop(node.attribute.pop()),
        6 => {
            if let Some(attribute) = random.pick(&mut node.attribute) {
                attribute.i = extreme;
                if let Some(int) = random.pick(&mut attribute.ints) {
                    *int = extreme;
                }
            }
        }
        _ => {
            if let Some(attribute) = random.pick(&mut node.attribute) {
                attribute.ints.push(extreme);
                if let Some(tensor) = &mut attribute.t {
                    damage_tensor(random, tensor);
                }
            }
        }
    }
}

/// Changes the messages of the file, which stays a valid encoding.
fn damage_model(random: &mut Random, model: &mut ModelProto) {
    let Some(graph) = &mut model.graph else { return };
    for _ in 0..=random.below(3) {
        match random.below(6) {
            0 => {
                if let Some(tensor) = random.pick(&mut graph.initializer) {
                    damage_tensor(random, tensor);
                }
            }
            1 => {
                let extreme = random.extreme();
                let input = graph.input.first_mut().and_then(|input| input.r#type.as_mut());
                let shape = input
                    .and_then(|of| of.tensor_type.as_mut())
                    .and_then(|tensor| tensor.shape.as_mut());
                if let Some(dim) = shape.and_then(|shape| random.pick(&mut shape.dim)) {
                    dim.value = Some(dimension::Value::DimValue(extreme));
                }
            }
            _ => {
                let count = graph.node.len();
                let other = graph.node[random.below(count)].clone();
                if let Some(node) = random.pick(&mut graph.node) {
                    damage_node(random, node, &other);
                }
            }
        }
    }
}

#[test]
fn damaged_models_are_refused_or_loaded() {
    let count = std::env::var(COUNT_VARIABLE)
        .ok()
        .and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(COUNT);
    let models = models();
    assert!(models.len() >= 10, "only {} models", models.len());
    let (mut loaded, mut refused) = (0, 0);
    for index in 0..count {
        let mut random = Random(index as u64);
        let (name, original) = &models[index % models.len()];
        let mut bytes = original.clone();
        if random.below(3) == 0 {
            damage_bytes(&mut random, &mut bytes);
        } else {
            let mut model = ModelProto::decode(&bytes[..]).unwrap();
            damage_model(&mut random, &mut model);
            bytes = model.encode_to_vec();
        }
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| load_bytes(name, bytes, &Options::default())));
        let time = start.elapsed();
        assert!(time < LONGEST, "mutation {index} of {name} took {time:?}");
        match result {
            Ok(Ok(model)) => {
                loaded += 1;
                assert!(
                    model.graph.shapes(5).is_ok(),
                    "mutation {index} of {name} has no shapes for 5 images"
                );
            }
            Ok(Err(error)) => {
                refused += 1;
                let is_known = matches!(
                    error,
                    Error::Invalid { .. } | Error::Problems { .. } | Error::Extents { .. }
                );
                assert!(
                    is_known && !error.to_string().is_empty(),
                    "mutation {index} of {name}: {error}"
                );
            }
            Err(_) => panic!("mutation {index} of {name} panics"),
        }
    }
    // Both happen, so that the mutations are neither too weak nor too strong.
    assert!(
        loaded * 50 > count && refused * 50 > count,
        "{loaded} loaded, {refused} refused"
    );
}
