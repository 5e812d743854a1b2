//! Tokens of prompts: positions of points and corners as sines and cosines, plus a vector for the kind of each.

use std::f64::consts::TAU;

use super::config::{Config, Decoder};
use crate::error::Result;
use crate::model::weights::Weights;

/// Index of the token whose result is the scores.
pub(super) const IOU_TOKEN: usize = 0;
/// Index of the first token of a mask.
pub(super) const MASK_TOKENS: usize = 1;

/// A point of a prompt, in pixels of the model's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PromptPoint {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// True for a point of the object, false for one outside of it.
    pub(crate) is_inside: bool,
}

/// Random frequencies by which a position becomes sines and cosines.
#[derive(Debug)]
pub(super) struct Frequencies {
    /// Factors of x, then of y.
    factors: Vec<f64>,
}

impl Frequencies {
    fn count(&self) -> usize {
        self.factors.len() / 2
    }

    /// Returns the vector of a position. Both coordinates are from 0 to 1.
    fn of_position(&self, [x, y]: [f64; 2]) -> impl Iterator<Item = f64> {
        let [x, y] = [x, y].map(|coordinate| 2.0 * coordinate - 1.0);
        let (of_x, of_y) = self.factors.split_at(self.count());
        let angles = of_x.iter().zip(of_y);
        let angles: Vec<f64> = angles.map(|(of_x, of_y)| TAU * (x * of_x + y * of_y)).collect();
        let sines: Vec<f64> = angles.iter().map(|angle| angle.sin()).collect();
        sines.into_iter().chain(angles.into_iter().map(f64::cos))
    }

    /// Returns the vectors of the centres of a grid's patches, row by row.
    pub(super) fn of_grid(&self, side: usize) -> Vec<f32> {
        let centre = |index: usize| (index as f64 + 0.5) / side as f64;
        let patches = (0..side).flat_map(|row| (0..side).map(move |column| [column, row]));
        patches
            .flat_map(|[column, row]| self.of_position([centre(column), centre(row)]))
            .map(|value| value as f32)
            .collect()
    }
}

/// Weights that make tokens of prompts.
#[derive(Debug)]
pub(crate) struct PromptEncoder {
    pub(super) frequencies: Frequencies,
    /// Side of the image in which coordinates are given.
    size: f64,
    /// Tokens before those of the prompt.
    pub(super) output: Vec<f32>,
    /// Vectors of points outside and inside of the object, of the first and the second corner.
    pub(super) kinds: [Vec<f32>; 4],
    /// Token that ends points without a box.
    pub(super) no_point: Vec<f32>,
}

impl PromptEncoder {
    pub(super) fn load(config: &Config, weights: &mut Weights) -> Result<Self> {
        let dim = config.decoder.dim;
        let tied = "prompt_encoder.shared_embedding.positional_embedding";
        let shared = "shared_image_embedding.positional_embedding";
        let name = if weights.shape(shared).is_none() && weights.shape(tied).is_some() {
            tied
        } else {
            shared
        };
        let factors = weights.take(name, &[2, config.frequencies])?;
        weights.ignore(tied, "it has the same values as `shared_image_embedding`");
        let mut vectors = |name: &str, rows: usize| -> Result<Vec<f32>> {
            let tensor = weights.take(&format!("{name}.weight"), &[rows, dim])?;
            Ok(tensor.to_f32().into_owned())
        };
        let mut output = vectors("mask_decoder.iou_token", 1)?;
        output.extend(vectors("mask_decoder.mask_tokens", config.decoder.masks + 1)?);
        let mut kinds: [Vec<f32>; 4] = Default::default();
        for (index, kind) in kinds.iter_mut().enumerate() {
            *kind = vectors(&format!("prompt_encoder.point_embed.{index}"), 1)?;
        }
        Ok(Self {
            frequencies: Frequencies {
                factors: factors.to_f32().iter().copied().map(f64::from).collect(),
            },
            size: config.prompt_size as f64,
            output,
            kinds,
            no_point: vectors("prompt_encoder.not_a_point_embed", 1)?,
        })
    }

    /// Returns the vector of a place in pixels of the model's input.
    pub(super) fn position(&self, place: [f64; 2]) -> impl Iterator<Item = f64> {
        // Coordinates are those of the pixel's corner.
        self.frequencies
            .of_position(place.map(|coordinate| (coordinate + 0.5) / self.size))
    }

    /// Returns the tokens of a prompt, one after the other, those of the outputs first.
    ///
    /// `corners` are left, top, right and bottom of a box in pixels of the model's input.
    pub(crate) fn tokens(&self, points: &[PromptPoint], corners: Option<[f64; 4]>) -> Vec<f32> {
        let mut tokens = self.output.clone();
        let mut add = |x: f64, y: f64, kind: usize| {
            let values = self.position([x, y]).zip(&self.kinds[kind]);
            tokens.extend(values.map(|(value, &kind)| (value + f64::from(kind)) as f32));
        };
        for &PromptPoint { x, y, is_inside } in points {
            add(x, y, usize::from(is_inside));
        }
        match corners {
            Some([left, top, right, bottom]) => {
                add(left, top, 2);
                add(right, bottom, 3);
            }
            None => tokens.extend(&self.no_point),
        }
        tokens
    }
}

impl Decoder {
    /// Returns the number of tokens before those of the prompt.
    pub(super) fn output_tokens(&self) -> usize {
        self.masks + 2
    }
}
