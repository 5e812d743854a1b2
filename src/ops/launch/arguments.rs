//! The argument structures of the kernels, as the headers in `hip/` have them. Addresses
//! are those of the device; what each field means is said there.

/// Defines structures as C lays them out, and [`Layout`] for each.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            #[allow(missing_docs)] // the headers have them
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// How C lays this out.
                pub const LAYOUT: Layout = Layout {
                    name: stringify!($name),
                    bytes: size_of::<$name>(),
                    fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>()),)*],
                };
            }
        )*

        /// All structures.
        pub const LAYOUTS: &[Layout] = &[$($name::LAYOUT,)*];
    };
}

/// The size of a structure and where its fields are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The structure's name in C.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

arguments! {
    /// `patch_extract` and `patch_extract_chw`.
    PatchExtractArgs {
        pixels: u64,
        out: u64,
        scale: [f32; 3],
        shift: [f32; 3],
        images: u32,
        height: u32,
        width: u32,
        patch_height: u32,
        patch_width: u32,
        reserved: u32,
    }

    /// `resize_horizontal` and `resize_vertical`.
    ResizeArgs {
        input: u64,
        output: u64,
        weights: u64,
        starts: u64,
        counts: u64,
        input_row: u64,
        taps: u32,
        outputs: u32,
        rows: u32,
        columns: u32,
    }

    /// `resize_nearest`.
    ResizeNearestArgs {
        input: u64,
        output: u64,
        columns: u64,
        rows: u64,
        input_row: u64,
        width: u32,
        height: u32,
        input_height: u32,
        reserved: u32,
    }

    /// `tokens`.
    TokensArgs {
        x: u64,
        prefix: u64,
        position: u64,
        out: u64,
        images: u32,
        tokens: u32,
        prefixes: u32,
        channels: u32,
    }

    /// `layer_norm`.
    LayerNormArgs {
        x: u64,
        residual: u64,
        weight: u64,
        bias: u64,
        sum: u64,
        out: u64,
        rows: u32,
        channels: u32,
        epsilon: f32,
        whole_block: u32,
    }

    /// Which keys a query sees, in [`SoftmaxArgs`] and [`AttentionArgs`].
    Visibility {
        key_mask: u64,
        diagonal: i32,
        left: i32,
        right: i32,
        reserved: u32,
    }

    /// `softmax`.
    SoftmaxArgs {
        x: u64,
        out: u64,
        visible: Visibility,
        images: u32,
        heads: u32,
        queries: u32,
        keys: u32,
        scale: f32,
        whole_block: u32,
    }

    /// `attention_<D>`.
    AttentionArgs {
        q: u64,
        k: u64,
        v: u64,
        out: u64,
        visible: Visibility,
        q_image: u64,
        k_image: u64,
        v_image: u64,
        out_image: u64,
        q_token: u32,
        k_token: u32,
        v_token: u32,
        out_token: u32,
        images: u32,
        heads: u32,
        queries: u32,
        keys: u32,
        head_dim: u32,
        scale: f32,
    }

    /// `bias_activation`.
    BiasActivationArgs {
        x: u64,
        bias: u64,
        residual: u64,
        out: u64,
        rows: u32,
        channels: u32,
        activation: u32,
        reserved: u32,
    }

    /// `swiglu`.
    SwiGluArgs {
        x: u64,
        bias: u64,
        out: u64,
        rows: u32,
        channels: u32,
    }

    /// `add`.
    AddArgs {
        x: u64,
        gamma: u64,
        y: u64,
        out: u64,
        rows: u32,
        channels: u32,
        y_rows: u32,
        factor: f32,
    }

    /// `pool`.
    PoolArgs {
        x: u64,
        out: u64,
        images: u32,
        tokens: u32,
        channels: u32,
        mode: u32,
        first: u32,
        reserved: u32,
    }
}
