//! Attributes of interpolations, and the weights that they give to the elements of an axis.

/// Interpolation of images to another size: ONNX's Resize.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interpolate {
    /// Height and width of the result.
    pub size: [usize; 2],
    /// Pixels of the result per pixel of x, down and across, for coordinates. `None` if they are the quotients of the extents.
    pub scale: Option<[f32; 2]>,
    /// The function between pixels.
    pub kernel: InterpolationKernel,
    /// The position in x of a pixel of the result.
    pub coordinates: Coordinates,
    /// True if a kernel of a smaller result is widened by the factor between the sizes. Not for the nearest pixel.
    pub antialias: bool,
    /// True if pixels outside of x have no weight. Otherwise they are those at the edge.
    pub exclude_outside: bool,
}

/// The function between pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InterpolationKernel {
    /// The nearest pixel.
    Nearest(NearestRounding),
    /// Linear in both directions.
    Linear,
    /// Cubic convolution with this coefficient, usually −0.75 or −0.5.
    Cubic(f32),
}

/// Rounding of a position to the nearest pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearestRounding {
    /// To nearest, a half down.
    PreferFloor,
    /// To nearest, a half up.
    PreferCeil,
    /// Down.
    Floor,
    /// Up.
    Ceil,
}

/// The position p in x of pixel i of the result, for n pixels of x, m of the result, and m = s·n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// `(i + ½)/s − ½`.
    HalfPixel,
    /// `HalfPixel`, moved so that the centres of both images agree where m is not s·n.
    HalfPixelSymmetric,
    /// `HalfPixel`, but 0 for a result of one pixel.
    PytorchHalfPixel,
    /// `i·(n − 1)/(m − 1)`, and 0 for a result of one pixel.
    AlignCorners,
    /// `i/s`.
    Asymmetric,
}

/// Positions along an axis: `(i + shift) · numerator / denominator − shift + offset` for element i of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Positions {
    /// See [`Positions`].
    pub shift: f64,
    /// See [`Positions`].
    pub numerator: f64,
    /// See [`Positions`].
    pub denominator: f64,
    /// See [`Positions`].
    pub offset: f64,
}

impl Positions {
    fn double(&self, index: usize) -> f64 {
        (index as f64 + self.shift) * self.numerator / self.denominator - self.shift + self.offset
    }

    /// Computes in f32 like ONNX Runtime: the nearest pixel depends on the last bit.
    fn single(&self, index: usize) -> f32 {
        let shift = self.shift as f32;
        let scaled = (index as f32 + shift) * self.numerator as f32 / self.denominator as f32;
        scaled - shift + self.offset as f32
    }
}

/// Maximum number of elements of x that an element of the result depends on along one axis.
const MOST_TAPS: f64 = 65_536.0;

impl Interpolate {
    /// Returns pixels of the result per pixel of x along `axis`, which has `extent` elements.
    pub fn scale_of(&self, axis: usize, extent: usize) -> f32 {
        match self.scale {
            Some(scale) => scale[axis],
            None => self.size[axis] as f32 / extent as f32,
        }
    }

    /// Returns the factor by which the kernel is stretched along `axis`: at least 1.
    pub fn stretch(&self, axis: usize, extent: usize) -> f64 {
        let scale = f64::from(self.scale_of(axis, extent));
        let stretches = self.antialias && scale < 1.0;
        if stretches { 1.0 / scale } else { 1.0 }
    }

    /// Returns half the width of the kernel in pixels of x, before it is stretched.
    pub fn support(&self) -> f64 {
        match self.kernel {
            InterpolationKernel::Nearest(_) => 0.5,
            InterpolationKernel::Linear => 1.0,
            InterpolationKernel::Cubic(_) => 2.0,
        }
    }

    /// Returns false if an axis of `extent` elements has positions that are no numbers, or kernels that are too wide.
    pub(super) fn is_defined(&self, axis: usize, extent: usize) -> bool {
        let scale = self.scale_of(axis, extent);
        let taps = 2.0 * self.support() * self.stretch(axis, extent);
        scale.is_finite() && scale > 0.0 && taps <= MOST_TAPS
    }

    /// Returns the positions along `axis`, which has `extent` elements in x.
    pub fn positions(&self, axis: usize, extent: usize) -> Positions {
        let (scale, size) = (f64::from(self.scale_of(axis, extent)), self.size[axis] as f64);
        let n = extent as f64;
        let half_pixel = Positions {
            shift: 0.5,
            numerator: 1.0,
            denominator: scale,
            offset: 0.0,
        };
        let corner = Positions {
            shift: 0.0,
            ..half_pixel
        };
        match self.coordinates {
            Coordinates::HalfPixelSymmetric => Positions {
                offset: n / 2.0 * (1.0 - size / (scale * n)),
                ..half_pixel
            },
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if self.size[axis] == 1 => Positions {
                numerator: 0.0,
                ..corner
            },
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => half_pixel,
            Coordinates::AlignCorners => Positions {
                numerator: n - 1.0,
                denominator: size - 1.0,
                ..corner
            },
            Coordinates::Asymmetric => corner,
        }
    }

    fn weight(&self, distance: f64) -> f64 {
        let x = distance.abs();
        match self.kernel {
            InterpolationKernel::Nearest(_) => 1.0,
            InterpolationKernel::Linear => (1.0 - x).max(0.0),
            InterpolationKernel::Cubic(a) => {
                let a = f64::from(a);
                if x <= 1.0 {
                    ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * a
                } else {
                    0.0
                }
            }
        }
    }

    /// Returns the elements of an axis of x with `extent` elements that element `index` of the result depends on, each with its weight. An
    /// element may occur several times.
    pub fn taps(&self, axis: usize, index: usize, extent: usize) -> Vec<(usize, f64)> {
        let last = extent.saturating_sub(1);
        let clamp = |at: f64| at.clamp(0.0, last as f64) as usize;
        if let InterpolationKernel::Nearest(rounding) = self.kernel {
            let position = self.positions(axis, extent).single(index);
            let at = match rounding {
                NearestRounding::PreferFloor => (position - 0.5).ceil(),
                NearestRounding::PreferCeil => (position + 0.5).floor(),
                NearestRounding::Floor => position.floor(),
                NearestRounding::Ceil => position.ceil(),
            };
            return vec![(clamp(at.into()), 1.0)];
        }
        let (position, stretch) = (
            self.positions(axis, extent).double(index),
            self.stretch(axis, extent),
        );
        let reach = self.support() * stretch;
        let first = (position - reach).floor() + 1.0;
        let count = ((position + reach).ceil() - first).max(1.0) as usize;
        let taps = (0..count).filter_map(|tap| {
            let at = first + tap as f64;
            let inside = (0.0..=last as f64).contains(&at);
            let weight = self.weight((at - position) / stretch);
            (inside || !self.exclude_outside).then_some((clamp(at), weight))
        });
        let mut taps: Vec<(usize, f64)> = taps.collect();
        let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
        if (self.exclude_outside || self.antialias) && sum != 0.0 {
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    }
}
