//! Prompts: points and a box that say what to segment.

use crate::error::{Error, Result};
use crate::model::PromptPoint;

/// What to segment in an image: points of the object, points outside of it, and at most one box around it.
///
/// Coordinates are pixels of the image, from its left and its top.
///
/// ```
/// use hipvit::segment::Prompt;
///
/// let point = Prompt::new().inside(40.0, 25.5);
/// let both = Prompt::new().inside(40.0, 25.5).outside(80.0, 10.0).within([20.0, 5.0, 70.0, 50.0]);
/// assert_ne!(point, both);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    points: Vec<Point>,
    corners: Option<[f32; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f32,
    y: f32,
    is_inside: bool,
}

impl Prompt {
    /// Returns a prompt without points and box, to which some must be added.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a point of the object.
    #[must_use]
    pub fn inside(self, x: f32, y: f32) -> Self {
        self.point(x, y, true)
    }

    /// Adds a point that is not of the object.
    #[must_use]
    pub fn outside(self, x: f32, y: f32) -> Self {
        self.point(x, y, false)
    }

    /// Adds a point, of the object or not.
    #[must_use]
    pub fn point(mut self, x: f32, y: f32, is_inside: bool) -> Self {
        self.points.push(Point { x, y, is_inside });
        self
    }

    /// Sets the box around the object: left, top, right and bottom.
    #[must_use]
    pub fn within(mut self, corners: [f32; 4]) -> Self {
        self.corners = Some(corners);
        self
    }

    /// Checks that the prompt is in an image of this height and width.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a prompt without points and box, a point or a box outside of the image, or a box without area.
    pub fn check(&self, [height, width]: [usize; 2]) -> Result<()> {
        let wrong = |reason: String| Err(Error::argument("prompt", reason));
        if self.points.is_empty() && self.corners.is_none() {
            return wrong("has neither a point nor a box. Give one of them".to_owned());
        }
        let is_in = |x: f32, y: f32| (0.0..=width as f32).contains(&x) && (0.0..=height as f32).contains(&y);
        for &Point { x, y, .. } in &self.points {
            if !is_in(x, y) {
                return wrong(format!(
                    "the point {x},{y} is outside of the image, which is {width}×{height}"
                ));
            }
        }
        if let Some([left, top, right, bottom]) = self.corners {
            if !(is_in(left, top) && is_in(right, bottom)) {
                return wrong(format!(
                    "the box {left},{top},{right},{bottom} is not inside of the image, which is {width}×{height}"
                ));
            }
            if right <= left || bottom <= top {
                return wrong(format!(
                    "the box {left},{top},{right},{bottom} has no area. Give left, top, right and bottom, in this order"
                ));
            }
        }
        Ok(())
    }

    /// Returns the points in an image that was resized by these factors along height and width.
    pub(super) fn scaled_points(&self, [down, across]: [f64; 2]) -> Vec<PromptPoint> {
        let scaled = |point: &Point| PromptPoint {
            x: f64::from(point.x) * across,
            y: f64::from(point.y) * down,
            is_inside: point.is_inside,
        };
        self.points.iter().map(scaled).collect()
    }

    /// Returns the box in an image that was resized by these factors along height and width.
    pub(super) fn scaled_corners(&self, [down, across]: [f64; 2]) -> Option<[f64; 4]> {
        let factors = [across, down, across, down];
        let corners = self.corners?;
        Some([0, 1, 2, 3].map(|index| f64::from(corners[index]) * factors[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_must_be_in_the_image() {
        let fault = |prompt: Prompt| prompt.check([30, 40]).unwrap_err().to_string();
        let good = [
            Prompt::new().inside(0.0, 0.0).outside(40.0, 30.0),
            Prompt::new().within([0.0, 0.0, 40.0, 30.0]),
        ];
        for prompt in good {
            prompt.check([30, 40]).unwrap();
        }
        assert!(fault(Prompt::new()).contains("neither a point nor a box"));
        for prompt in [
            Prompt::new().inside(40.5, 3.0),
            Prompt::new().outside(3.0, -0.5),
            Prompt::new().inside(f32::NAN, 3.0),
        ] {
            assert!(fault(prompt).contains("is outside of the image, which is 40×30"));
        }
        assert!(fault(Prompt::new().within([0.0, 0.0, 41.0, 3.0])).contains("is not inside of the image"));
        for corners in [[5.0, 1.0, 5.0, 9.0], [5.0, 9.0, 8.0, 1.0]] {
            assert!(fault(Prompt::new().within(corners)).contains("has no area"));
        }
    }

    #[test]
    fn coordinates_are_scaled_along_their_axes() {
        let prompt = Prompt::new().inside(3.0, 5.0).within([1.0, 2.0, 3.0, 4.0]);
        let point = prompt.scaled_points([10.0, 100.0])[0];
        assert_eq!((point.x, point.y, point.is_inside), (300.0, 50.0, true));
        assert_eq!(
            prompt.scaled_corners([10.0, 100.0]),
            Some([100.0, 20.0, 300.0, 40.0])
        );
    }
}
