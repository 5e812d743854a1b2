//! Kernel selection. For a linear layer it chooses the library, the algorithm, and whether the library's epilogue computes what follows the
//! GEMM. For the patch embedding, convolutions and attention it chooses MIOpen or builtin kernels. For attention with a pattern it chooses the tile.
//!
//! The choice for a [`Problem`] comes from the first of these that has one:
//!
//! 1. The measurements of `hipvit tune` on this machine ([`Store`]).
//! 2. The measurements shipped with the crate (`defaults/`), of the same GPU with the same libraries.
//! 3. A rule.
//!
//! Nothing is measured unless requested, so that the first run does not wait.
//!
//! | problem | rule |
//! | --- | --- |
//! | linear layer of at most 4 rows of a decoder | the builtin `gemv`, unless results must not depend on the batch size |
//! | linear layer | hipBLASLt's first algorithm with its epilogue, if hipBLASLt has kernels for the GPU; otherwise rocBLAS and a builtin kernel |
//! | linear layer in int8 | rocBLAS and a builtin kernel: on an H200 faster than the builtin `int8_gemm`, which does both |
//! | attention with a pattern | the tile of `hip/attention/config.hpp` |
//! | all others | builtin kernels; MIOpen is not even opened |
//!
//! On gfx942, rocBLAS's default choice is published to take 1.36× the time of the best algorithm, hipBLASLt's first algorithm 1.01×. This
//! was not verified on an AMD GPU.

mod choice;
mod confirm;
mod key;
mod options;
mod problem;
mod store;
mod whole_model;

use std::sync::OnceLock;

use crate::hip::{Device, Epilogue};
use crate::kernels::has_int8_gemm;
use crate::kernels::pattern_attention::tile::AttentionTile;

pub use self::choice::{Choice, Origin};
pub use self::confirm::PackedLayer;
pub use self::key::{HIPBLASLT, HIPSPARSELT, Key, MIOPEN};
pub use self::options::{AllReduceKind, SelectOptions, Sparse};
pub use self::problem::{
    AttentionShape, ConvShape, Float8Shape, GemmLayout, LinearShape, PatchEmbeddingShape,
    PatternAttentionShape, Problem,
};
pub(in crate::exec) use self::store::SparseKernel;
pub use self::store::Store;
pub use self::whole_model::WholeModel;

/// Number of rows whose GEMM algorithm is used for all numbers of rows if results must not depend on the batch size. It is between the rows
/// of one image and those of a large batch.
pub const REFERENCE_ROWS: usize = 2048;

/// Returns the measured tile of attention with a pattern on the device, if one is stored or shipped.
pub(crate) fn stored_tile(device: &Device, shape: PatternAttentionShape) -> Option<AttentionTile> {
    let selection = Selection::new(SelectOptions::default(), Key::of(device), None, |_| None);
    match selection.select(shape) {
        (Choice::Tile(tile), _) => Some(tile),
        _ => None,
    }
}

/// Kernel selection of an executor. Can be shared between threads.
#[derive(Debug, Default)]
pub struct Selection {
    options: SelectOptions,
    key: Key,
    /// Reason why hipBLASLt is not a candidate.
    hipblaslt_unavailable: Option<String>,
    /// The model decodes tokens one by one, so that most layers have few rows.
    decodes: bool,
    tuned: Store,
    shipped: Store,
    /// First problem that a library failed to compute, and the reason.
    rejected: OnceLock<String>,
}

impl Selection {
    /// Creates the selection for the device of `key`, which has hipBLASLt's version. `hipblaslt_unavailable` is the reason if hipBLASLt is
    /// not a candidate. Queries the versions of MIOpen and hipSPARSELt only if a choice depends on them, since these libraries open slowly.
    pub fn new(
        options: SelectOptions,
        mut key: Key,
        hipblaslt_unavailable: Option<String>,
        version: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let (mut tuned, mut shipped) = (Store::load(&key), Store::shipped(&key));
        for library in [MIOPEN, HIPSPARSELT] {
            if tuned.depends_on(library) || shipped.depends_on(library) {
                key = key.with(library, version(library));
            }
        }
        tuned.retain(&key);
        shipped.retain(&key);
        Self {
            options,
            key,
            hipblaslt_unavailable,
            decodes: false,
            tuned,
            shipped,
            rejected: OnceLock::new(),
        }
    }

    /// Returns a selection for measurements: what is [chosen](Selection::choose), else what is in `tuned`, else the rule.
    pub(super) fn measuring(&self, tuned: Store) -> Self {
        let options = SelectOptions {
            measured: true,
            reproducible: false,
            ..self.options
        };
        Self {
            options,
            key: self.key.clone(),
            hipblaslt_unavailable: self.hipblaslt_unavailable.clone(),
            decodes: self.decodes,
            tuned,
            ..Self::default()
        }
    }

    /// Sets the candidate for `problem`.
    pub(super) fn choose(&mut self, problem: Problem, candidate: Choice) {
        self.tuned.insert(problem, candidate, 0.0);
    }

    /// Returns the key: the device and the libraries, with MIOpen if a choice depends on it.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the options.
    pub fn options(&self) -> SelectOptions {
        self.options
    }

    /// Sets the options.
    pub(super) fn set_options(&mut self, options: SelectOptions) {
        self.options = options;
    }

    /// Sets that the model decodes tokens one by one.
    pub(super) fn set_decodes(&mut self, decodes: bool) {
        self.decodes = decodes;
    }

    /// Replaces the measurements of this machine.
    pub(super) fn set_tuned(&mut self, tuned: Store) {
        self.tuned = tuned;
    }

    /// Returns true if hipBLASLt is a candidate.
    pub fn has_hipblaslt(&self) -> bool {
        self.hipblaslt_unavailable.is_none()
    }

    /// Returns true if rocBLAS may compute some linear layer.
    pub(super) fn uses_rocblas(&self) -> bool {
        !self.has_hipblaslt() || self.tuned.has(Choice::Rocblas) || self.shipped.has(Choice::Rocblas)
    }

    /// Returns why hipBLASLt is not a candidate, or what a library failed to compute.
    pub fn note(&self) -> Option<&str> {
        let rejected = self.rejected.get();
        self.hipblaslt_unavailable
            .as_ref()
            .or(rejected)
            .map(String::as_str)
    }

    /// Returns the measurements of this machine.
    pub fn tuned(&self) -> &Store {
        &self.tuned
    }

    /// Returns the candidate for `problem` by the rule.
    pub fn rule(&self, problem: &Problem) -> Choice {
        match problem {
            Problem::Linear(shape) if shape.int8.is_some() => self.rule_of_int8(shape),
            Problem::Linear(shape) if self.has_few_rows(shape) => Choice::Gemv,
            // rocBLAS has no FP8, so hipBLASLt's error is the one to report.
            Problem::Linear(shape) if self.has_hipblaslt() || shape.float8.is_some() => Choice::Hipblaslt {
                algorithm: 0,
                // On an H100, the gradient of a bias beside that of its weight takes longer than a kernel of its own: 15.6 ms instead of 14.3
                // for the 48 layers of ViT-B/16 at batch 256 in bf16.
                epilogue: self.can_fuse(shape) && shape.epilogue() != Some(Epilogue::BiasGradient),
            },
            Problem::Linear(_) => Choice::Rocblas,
            Problem::PatchEmbedding(_)
            | Problem::Attention(_)
            | Problem::PatternAttention(_)
            | Problem::Conv(_) => Choice::Builtin,
        }
    }

    /// Returns rocBLAS, or the builtin kernel for channels that are not a multiple of 4: cuBLAS behind HIP on CUDA does not compute those.
    fn rule_of_int8(&self, shape: &LinearShape) -> Choice {
        let arch = &self.key.arch;
        let is_multiple = [shape.n, shape.k].iter().all(|extent| extent.is_multiple_of(4));
        if arch.starts_with("sm_") && !is_multiple && has_int8_gemm(arch) {
            Choice::Int8
        } else {
            Choice::Rocblas
        }
    }

    /// Returns true for a layer of a decoder that the builtin kernel for few rows computes by the rule.
    fn has_few_rows(&self, shape: &LinearShape) -> bool {
        self.decodes && shape.has_few_rows() && !self.options.reproducible
    }

    fn can_fuse(&self, shape: &LinearShape) -> bool {
        self.options.epilogues && shape.epilogue().is_some()
    }

    /// Returns true if `candidate` can compute `problem` here. The check is needed since a selection file may contain anything.
    fn is_usable(&self, problem: &Problem, candidate: Choice) -> bool {
        match (problem, candidate) {
            (Problem::Linear(shape), Choice::Rocblas) => shape.float8.is_none() && !shape.preactivation,
            (Problem::Linear(shape), Choice::Gemv) => shape.has_few_rows(),
            (Problem::Linear(shape), Choice::Int8) => shape.int8.is_some() && has_int8_gemm(&self.key.arch),
            (Problem::Linear(shape), Choice::Hipblaslt { epilogue, .. }) => {
                let can_fuse = self.can_fuse(shape);
                self.has_hipblaslt()
                    && shape.int8.is_none()
                    && (can_fuse || !epilogue && !shape.preactivation)
            }
            (Problem::Linear(_), _) => false,
            (Problem::PatternAttention(shape), Choice::Tile(tile)) => {
                AttentionTile::supported(&self.key.arch, shape.dtype.size(), shape.head_dim)
                    .any(|supported| supported == tile)
            }
            (Problem::PatternAttention(_), candidate) => candidate == Choice::Builtin,
            (_, candidate) => matches!(candidate, Choice::Builtin | Choice::Miopen),
        }
    }

    /// Returns the candidate for `problem`, and the origin of the choice.
    pub fn select(&self, problem: impl Into<Problem>) -> (Choice, Origin) {
        let problem = problem.into();
        let found = |store: &Store| store.get(&problem).filter(|&c| self.is_usable(&problem, c));
        let measured = self.options.measured && !self.options.reproducible;
        // The shipped measurements of few rows are of classifiers, which compute one such layer.
        let is_shipped = !matches!(problem, Problem::Linear(ref shape) if self.has_few_rows(shape));
        let shipped = is_shipped.then_some((&self.shipped, Origin::Shipped));
        [(&self.tuned, Origin::Tuned)]
            .into_iter()
            .chain(shipped)
            .filter(|_| measured)
            .find_map(|(store, origin)| Some((found(store)?, origin)))
            .unwrap_or_else(|| (self.rule(&problem), Origin::Rule))
    }

    /// Returns the candidate for a linear layer with a packed weight, and the origin of the choice.
    pub(super) fn packed(&self) -> (Choice, Origin) {
        let origin = match self.options.sparse {
            Sparse::On | Sparse::Builtin => Origin::Requested,
            _ => Origin::Tuned,
        };
        (Choice::SparseGemm, origin)
    }

    /// Returns the candidate for a linear layer with a weight compressed by hipSPARSELt, and the origin of the choice.
    pub(super) fn compressed(&self, problem: &Problem) -> (Choice, Origin) {
        let measured = self.options.measured && !self.options.reproducible;
        let tuned = self.tuned.get(problem).filter(|_| measured);
        if let Some(candidate @ Choice::Hipsparselt { .. }) = tuned {
            return (candidate, Origin::Tuned);
        }
        let epilogue = matches!(problem, Problem::Linear(shape) if self.can_fuse(shape));
        let candidate = Choice::Hipsparselt {
            algorithm: None,
            epilogue,
        };
        let origin = match self.options.sparse {
            Sparse::On => Origin::Requested,
            _ => Origin::Rule,
        };
        (candidate, origin)
    }

    /// Records that `library` cannot compute `problem`.
    pub fn reject(&self, library: &str, problem: impl Into<Problem>, reason: &str) {
        let problem = problem.into();
        self.rejected
            .get_or_init(|| format!("{library} does not compute {problem}: {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip::DType;
    use crate::ops::Activation;

    pub(super) fn shape(m: usize) -> LinearShape {
        LinearShape {
            m,
            n: 7,
            k: 5,
            layout: GemmLayout::Nt,
            dtype: DType::BF16,
            left: None,
            float8: None,
            int8: None,
            sparse: false,
            bias: true,
            activation: Some(Activation::GeluErf),
            preactivation: false,
            residual: false,
        }
    }

    pub(super) const PATCHES: PatchEmbeddingShape = PatchEmbeddingShape {
        images: 2,
        height: 33,
        width: 32,
        patch: [8, 4],
        n: 7,
        dtype: DType::BF16,
        bias: true,
    };

    pub(super) const ATTENTION: AttentionShape = AttentionShape {
        images: 2,
        heads: 3,
        tokens: 5,
        head_dim: 8,
        dtype: DType::BF16,
    };

    pub(super) const PATTERN: PatternAttentionShape = PatternAttentionShape {
        pattern: 0xfedc_ba98_7654_3210,
        images: 2,
        heads: 3,
        queries: 5,
        keys: 6,
        head_dim: 64,
        dtype: DType::BF16,
    };

    pub(super) const CONV: ConvShape = ConvShape {
        images: 2,
        size: [14, 12],
        channels: 6,
        features: 8,
        kernel: [3, 1],
        stride: [1, 2],
        dilation: [1, 1],
        padding: [[1, 1], [0, 0]],
        groups: 2,
        dtype: DType::BF16,
        bias: true,
        activation: Some(Activation::Relu),
        residual: false,
    };

    pub(super) fn key() -> Key {
        Key {
            device: "Some GPU".into(),
            arch: "gfx000".into(),
            libraries: "hipBLASLt 1".into(),
        }
    }

    fn selection(tuned: Store) -> Selection {
        let mut selection = Selection::new(SelectOptions::default(), key(), None, |_| None);
        selection.set_tuned(tuned);
        selection
    }

    #[test]
    fn measurements_go_before_the_rule() {
        let rule = Choice::Hipblaslt {
            algorithm: 0,
            epilogue: true,
        };
        assert_eq!(
            selection(Store::new(key())).select(shape(30)),
            (rule, Origin::Rule)
        );
        let mut tuned = Store::new(key());
        tuned.insert(shape(30), Choice::Rocblas, 1.5);
        tuned.insert(PATCHES, Choice::Miopen, 1.5);
        tuned.insert(ATTENTION, Choice::Miopen, 1.5);
        let mut selection = selection(tuned);
        assert_eq!(selection.select(shape(30)), (Choice::Rocblas, Origin::Tuned));
        assert_eq!(selection.select(shape(40)), (rule, Origin::Rule));
        for problem in [Problem::from(PATCHES), Problem::from(ATTENTION)] {
            assert_eq!(selection.select(problem), (Choice::Miopen, Origin::Tuned));
        }
        let options = selection.options;
        for options in [
            SelectOptions {
                reproducible: true,
                ..options
            },
            SelectOptions {
                measured: false,
                ..options
            },
        ] {
            selection.set_options(options);
            assert_eq!(selection.select(shape(30)), (rule, Origin::Rule));
            for problem in [Problem::from(PATCHES), Problem::from(ATTENTION)] {
                assert_eq!(selection.select(problem), (Choice::Builtin, Origin::Rule));
            }
        }
    }

    #[test]
    fn bytes_are_multiplied_by_rocblas_or_the_crates_kernel() {
        let bytes = LinearShape {
            dtype: DType::I8,
            int8: Some(DType::BF16),
            n: 8,
            k: 12,
            ..shape(30)
        };
        assert_eq!(bytes.to_string(), "linear 30×12×8 i8→bf16 +bias+gelu");
        assert_eq!((bytes.epilogue(), bytes.activations()), (None, DType::BF16));
        let select = |arch: &str, shape: LinearShape, tuned: Choice| {
            let key = Key {
                arch: arch.into(),
                ..key()
            };
            let mut selection = Selection::new(SelectOptions::default(), key.clone(), None, |_| None);
            let mut store = Store::new(key);
            store.insert(shape, tuned, 1.5);
            selection.set_tuned(store);
            selection.select(shape)
        };
        let rule = (Choice::Rocblas, Origin::Rule);
        let tuned = (Choice::Int8, Origin::Tuned);
        assert_eq!(select("gfx942", bytes, Choice::Int8), tuned);
        assert_eq!(
            select("gfx1030", bytes, Choice::Int8),
            rule,
            "has no matrix cores"
        );
        let library = Choice::Hipblaslt {
            algorithm: 0,
            epilogue: false,
        };
        assert_eq!(select("gfx942", bytes, library), rule);
        // cuBLAS only computes multiples of 4 channels.
        let odd = LinearShape { k: 13, ..bytes };
        assert_eq!(select("sm_90", odd, library), (Choice::Int8, Origin::Rule));
        assert_eq!(select("sm_90", bytes, library), rule);
        assert_eq!(select("gfx942", odd, library), rule);
        assert_eq!(select("gfx942", shape(30), Choice::Int8).1, Origin::Rule);
    }

    #[test]
    fn a_candidate_of_something_else_is_not_selected() {
        let mut tuned = Store::new(key());
        tuned.insert(shape(30), Choice::Miopen, 1.5);
        tuned.insert(PATCHES, Choice::Rocblas, 1.5);
        tuned.insert(ATTENTION, selection(Store::default()).select(shape(30)).0, 1.5);
        let selection = selection(tuned);
        for problem in [shape(30).into(), PATCHES.into(), Problem::from(ATTENTION)] {
            assert_eq!(
                selection.select(problem),
                (selection.rule(&problem), Origin::Rule),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_tile_is_selected_where_the_code_supports_it() {
        let tile = |text: &str| serde_json::from_str::<Choice>(text).unwrap();
        let small = tile(r#"{"tile":{"waves":4,"queries":64,"keys":32}}"#);
        let two_groups = tile(r#"{"tile":{"waves":4,"queries":128,"keys":32}}"#);
        let unknown = tile(r#"{"tile":{"waves":5,"queries":80,"keys":32}}"#);
        assert_eq!(small.to_string(), "tile 64×32 with 4 waves");
        let select = |arch: &str, tuned: Choice| {
            let key = Key {
                arch: arch.into(),
                ..key()
            };
            let mut selection = Selection::new(SelectOptions::default(), key.clone(), None, |_| None);
            let mut store = Store::new(key);
            store.insert(PATTERN, tuned, 1.5);
            selection.set_tuned(store);
            selection.select(PATTERN)
        };
        let rule = (Choice::Builtin, Origin::Rule);
        for (arch, tuned, is_selected) in [
            ("gfx942", small, true),
            ("gfx942", two_groups, false),
            ("gfx1100", two_groups, true),
            ("sm_90", unknown, false),
            ("sm_90", Choice::Miopen, false),
            ("sm_90", Choice::Builtin, true),
        ] {
            let expected = if is_selected { (tuned, Origin::Tuned) } else { rule };
            assert_eq!(select(arch, tuned), expected, "{arch} {tuned}");
        }
        let mut store = Store::new(key());
        store.insert(ATTENTION, small, 1.5);
        assert_eq!(selection(store).select(ATTENTION), rule);
    }

    #[test]
    fn few_rows_of_a_decoder_are_multiplied_by_the_builtin_kernel() {
        let mut selection = selection(Store::new(key()));
        assert!(matches!(selection.select(shape(4)).0, Choice::Hipblaslt { .. }));
        selection.set_decodes(true);
        assert_eq!(selection.select(shape(4)), (Choice::Gemv, Origin::Rule));
        let of_parameters = LinearShape {
            layout: GemmLayout::Nn,
            ..shape(4)
        };
        for shape in [shape(5), of_parameters] {
            assert!(
                matches!(selection.select(shape).0, Choice::Hipblaslt { .. }),
                "{shape}"
            );
        }
        selection.set_options(SelectOptions {
            reproducible: true,
            ..selection.options
        });
        assert!(matches!(selection.select(shape(4)).0, Choice::Hipblaslt { .. }));
    }

    #[test]
    fn without_hipblaslt_there_is_rocblas() {
        let hipblaslt_unavailable = Some("is not there".into());
        let mut selection = Selection::new(SelectOptions::default(), key(), hipblaslt_unavailable, |_| None);
        let mut tuned = Store::new(key());
        let fast = Choice::Hipblaslt {
            algorithm: 1,
            epilogue: false,
        };
        tuned.insert(shape(30), fast, 1.5);
        tuned.insert(ATTENTION, Choice::Miopen, 1.5);
        selection.set_tuned(tuned);
        assert_eq!(selection.select(shape(30)), (Choice::Rocblas, Origin::Rule));
        assert_eq!(selection.select(ATTENTION), (Choice::Miopen, Origin::Tuned));
        assert_eq!(selection.note(), Some("is not there"));
    }

    #[test]
    fn what_a_library_does_not_compute_is_told() {
        let selection = selection(Store::default());
        assert_eq!(selection.note(), None);
        selection.reject(MIOPEN, ATTENTION, "no solution");
        let expected = "MIOpen does not compute attention 2×3 heads×5 tokens×8 bf16: no solution";
        assert_eq!(selection.note(), Some(expected));
    }
}
