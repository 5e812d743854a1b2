//! Packs images of any aspect ratio into sequences of one length, for NaFlex models.
//!
//! A sequence has the prefix tokens of a fixed number of images, then the patches of as many images as fit. Each token has
//! the number of its image in the sequence, its document. Attention and pooling see the tokens of one document only.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::prelude::*;

use super::invalid::Invalid;
use super::packed_layout::{Layout, Table};
use super::positions::{self, Filter, Grid, GridTable};
use super::stage_sizes::MAX_ELEMENTS;
use super::vit::{Pooling, Positions, Vit};
use crate::image::Preprocess;
use crate::patch_grid::{self, PatchGrid};

/// Document of the tokens that no image has.
const PADDING: i32 = -1;

/// Maximum number of interpolated position tables that are kept.
const MAX_TABLES: usize = 64;

impl Layout {
    /// Prepares a model for sequences of `patches` patches. Returns the preprocessing of its images.
    ///
    /// An image gets at most as many patches as the preprocessing says, otherwise as the model's own image size has.
    ///
    /// # Errors
    ///
    /// Returns the reason if the model cannot be packed, or if an image may not fit a sequence.
    pub(super) fn apply(
        patches: usize,
        vit: &mut Vit,
        preprocess: Preprocess,
    ) -> Result<Preprocess, Invalid> {
        let (table, [patch, width]) = (table(vit)?, vit.patch);
        check_pooling(vit)?;
        if patch != width {
            return Err(format!("patches of {patch}×{width} pixels are not packed, only square ones").into());
        }
        let preprocess = match table {
            Table::Square { .. } => preprocess,
            Table::Grid(_) => {
                let rule = preprocess.to_patches(patch, vit.grid().iter().product());
                rule.map_err(|error| Invalid::from(error.to_string()))?
            }
        };
        let (height, width) = preprocess.output_size();
        let largest = patch_grid::most_patches([height, width]);
        if patches < largest {
            let reason = format!(
                "sequences of {patches} patches are too short for an image, which may have {largest} patches"
            );
            return Err(reason.into());
        }
        let layout = Self {
            patch,
            patches,
            // Resizing leaves few images with less than half of the maximum.
            images: (patches.saturating_mul(2) / largest).max(1),
            prefix: vit.prefix(),
            largest,
            table,
        };
        let channels = vit.dim.max(patch * patch * 3);
        if layout.tokens().saturating_mul(channels) > MAX_ELEMENTS {
            return Err(format!("sequences of {patches} patches are too long").into());
        }
        vit.positions = Some(Positions::Packed(layout));
        vit.image = [height, width];
        Ok(preprocess)
    }
}

/// Returns the table of a model whose library runs it on images of several aspect ratios at once.
fn table(vit: &Vit) -> Result<Table, Invalid> {
    match vit.positions {
        Some(Positions::PerImage { side }) => Ok(Table::Square { side }),
        Some(Positions::Grid(GridTable { is_sampled: true, .. })) => Err(
            "`pos_embed_use_grid_sample` is true, and sampled positions of packed images are not supported"
                .into(),
        ),
        Some(Positions::Grid(table)) => Ok(Table::Grid(table)),
        _ => Err(
            "its library runs it on images of one size. Only timm's naflexvit_* and transformers' siglip2 \
             take images of any aspect ratio"
                .into(),
        ),
    }
}

fn check_pooling(vit: &Vit) -> Result<(), Invalid> {
    match vit.pooling {
        Pooling::Class => Ok(()),
        Pooling::Mean { skip } | Pooling::Attention { skip, .. } if skip == 0 || skip == vit.prefix() => {
            Ok(())
        }
        other => Err(format!("its pooling, {other:?}, is not supported for packed images").into()),
    }
}

/// Place of an image in packed sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    sequence: usize,
    /// Patch of the sequence at which the image starts.
    first: usize,
    /// Number of the image in the sequence.
    document: usize,
}

/// Places of the images of a batch.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Grid and place of each image.
    images: Vec<(PatchGrid, Place)>,
    /// Number of sequences.
    pub(crate) sequences: usize,
    /// Row of the results of each image.
    pub(crate) rows: Vec<usize>,
}

/// Inputs of a model's graph besides the pixels.
#[derive(Debug)]
pub(crate) struct PackedInputs {
    /// Position embeddings of the patches, `[sequences, patches, D]`.
    pub(crate) positions: Vec<f32>,
    /// Document of each token, `[sequences, tokens]`.
    pub(crate) documents: Vec<i32>,
}

/// Packs batches of images into the inputs of a model. Created with a model by
/// [`LoadOptions::packed`](super::LoadOptions::packed).
pub struct Packing {
    layout: Layout,
    /// Position embeddings as stored, `[positions, D]`.
    table: Vec<f32>,
    dim: usize,
    /// Interpolated tables.
    interpolated: Mutex<HashMap<Grid, Arc<[f32]>>>,
}

impl Packing {
    /// Name of the graph's input of position embeddings.
    pub(crate) const POSITIONS: &'static str = "position_embeddings";
    /// Name of the graph's input of documents.
    pub(crate) const DOCUMENTS: &'static str = "documents";

    pub(super) fn new(layout: Layout, table: Vec<f32>, dim: usize) -> Self {
        Self {
            layout,
            table,
            dim,
            interpolated: Mutex::default(),
        }
    }

    /// Returns the number of patches in a sequence.
    pub fn patches(&self) -> usize {
        self.layout.patches
    }

    /// Returns the maximum number of images in a sequence.
    pub fn images(&self) -> usize {
        self.layout.images
    }

    /// Returns the maximum number of patches of an image.
    pub fn largest_image(&self) -> usize {
        self.layout.largest
    }

    /// Returns the bytes of a preprocessed image, in the form of [`patch_grid`].
    pub(crate) fn image_bytes(&self) -> usize {
        let Layout { patch, largest, .. } = self.layout;
        (largest * patch + 1) * patch * 3
    }

    /// Returns the bytes of the pixels of a sequence.
    pub(crate) fn sequence_bytes(&self) -> usize {
        self.layout.patches * self.layout.patch_bytes()
    }

    /// Returns the number of sequences that `images` images need at most, unless they are exceptionally thin.
    pub(crate) fn most_sequences(&self, images: usize) -> usize {
        images.min(1 + 2 * images * self.layout.largest / self.layout.patches)
    }

    /// Finds a place for each of the preprocessed `images`.
    pub(crate) fn place(&self, images: &[u8]) -> Placement {
        let Layout {
            patch,
            patches,
            images: most,
            largest,
            ..
        } = self.layout;
        let size = [largest * patch + 1, patch];
        let grids: Vec<PatchGrid> = images
            .chunks_exact(self.image_bytes())
            .filter_map(|image| PatchGrid::read(image, size, largest))
            .collect();
        let counts: Vec<usize> = grids.iter().map(|grid| grid.patches()).collect();
        let places = first_fit(&counts, patches, most);
        let last = places.iter().map(|place| place.sequence + 1).max();
        Placement {
            sequences: last.unwrap_or(0),
            rows: places
                .iter()
                .map(|place| place.sequence * most + place.document)
                .collect(),
            images: grids.into_iter().zip(places).collect(),
        }
    }

    /// Copies the patches of the preprocessed `images` into `pixels`, `[sequences, patches · p, p, 3]`. Returns the other
    /// inputs.
    pub(crate) fn fill(&self, placement: &Placement, images: &[u8], pixels: &mut [u8]) -> PackedInputs {
        let (layout, sequences) = (&self.layout, placement.sequences);
        let (tokens, prefixes, patch) = (layout.tokens(), layout.prefixes(), layout.patch_bytes());
        let row = layout.patches * self.dim;
        let mut positions = vec![0.0; sequences * row];
        let mut documents = vec![PADDING; sequences * tokens];
        let mut by_sequence: Vec<Vec<(&[u8], PatchGrid, Place)>> = vec![Vec::new(); sequences];
        let images = images.chunks_exact(self.image_bytes());
        for (image, &(grid, place)) in images.zip(&placement.images) {
            by_sequence[place.sequence].push((image, grid, place));
        }
        pixels
            .par_chunks_exact_mut(self.sequence_bytes())
            .zip(positions.par_chunks_exact_mut(row))
            .zip(documents.par_chunks_exact_mut(tokens))
            .zip(&by_sequence)
            .for_each(|(((pixels, positions), documents), images)| {
                let mut end = 0;
                for (document, prefix) in documents[..prefixes].chunks_mut(layout.prefix.max(1)).enumerate() {
                    prefix.fill(document as i32);
                }
                for &(image, grid, Place { first, document, .. }) in images {
                    let count = grid.patches();
                    let own = first * patch..(first + count) * patch;
                    pixels[own].copy_from_slice(&image[..count * patch]);
                    let table = self.interpolated([grid.rows, grid.columns]);
                    positions[first * self.dim..][..table.len()].copy_from_slice(&table);
                    documents[prefixes + first..][..count].fill(document as i32);
                    end = end.max(first + count);
                }
                pixels[end * patch..].fill(0);
            });
        PackedInputs { positions, documents }
    }

    /// Returns the position embeddings of an image with this grid.
    fn interpolated(&self, grid: Grid) -> Arc<[f32]> {
        if let Some(table) = self.interpolated.lock().get(&grid) {
            return table.clone();
        }
        let (stored, dim) = (&self.table, self.dim);
        let table: Arc<[f32]> = match self.layout.table {
            Table::Square { side } => {
                positions::resample(stored, dim, [side; 2], grid, Filter::LinearAntialiased).into()
            }
            Table::Grid(table) => match table.fit(stored, dim, grid) {
                Some(fitted) => fitted.into(),
                None => stored.as_slice().into(),
            },
        };
        let mut kept = self.interpolated.lock();
        if kept.len() >= MAX_TABLES {
            kept.clear();
        }
        kept.insert(grid, table.clone());
        table
    }
}

impl fmt::Debug for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packing")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

/// Places images of these numbers of patches into sequences of `capacity` patches and at most `most` images: the largest
/// first, each into the first sequence that has room.
fn first_fit(counts: &[usize], capacity: usize, most: usize) -> Vec<Place> {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|&image| std::cmp::Reverse(counts[image]));
    // Patches and images of each sequence so far.
    let mut sequences: Vec<[usize; 2]> = Vec::new();
    let mut places = vec![None; counts.len()];
    for image in order {
        let has_room = |[patches, images]: &[usize; 2]| patches + counts[image] <= capacity && *images < most;
        let sequence = sequences.iter().position(has_room).unwrap_or(sequences.len());
        if sequence == sequences.len() {
            sequences.push([0, 0]);
        }
        let [first, document] = sequences[sequence];
        sequences[sequence] = [first + counts[image], document + 1];
        places[image] = Some(Place {
            sequence,
            first,
            document,
        });
    }
    places.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_images_are_placed_first() {
        let places = first_fit(&[3, 6, 4, 2, 1], 8, 3);
        let at = |sequence, first, document| Place {
            sequence,
            first,
            document,
        };
        assert_eq!(
            places,
            [at(1, 4, 1), at(0, 0, 0), at(1, 0, 0), at(0, 6, 1), at(1, 7, 2)]
        );
        // A sequence takes no more images than its pooling has queries.
        assert_eq!(first_fit(&[1, 1, 1], 8, 2)[2], at(1, 0, 0));
    }

    proptest! {
        #[test]
        fn images_do_not_overlap(
            counts in prop::collection::vec(1usize..17, 0..40),
            capacity in 16usize..50,
            most in 1usize..6,
        ) {
            let places = first_fit(&counts, capacity, most);
            prop_assert_eq!(places.len(), counts.len());
            let mut tokens = std::collections::HashSet::new();
            let mut documents = std::collections::HashSet::new();
            for (place, count) in places.iter().zip(counts) {
                prop_assert!(place.first + count <= capacity && place.document < most);
                prop_assert!(documents.insert((place.sequence, place.document)));
                for token in place.first..place.first + count {
                    prop_assert!(tokens.insert((place.sequence, token)));
                }
            }
        }
    }
}
