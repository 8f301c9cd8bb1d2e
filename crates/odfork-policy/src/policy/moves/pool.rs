//! Pages that are away from the program but in memory: a ring of places, filled at the head and
//! emptied at the tail. What a touch takes back leaves a hole.

use crate::trace::Page;

/// A page in the pool.
#[derive(Clone, Copy)]
pub struct Parked {
    pub page: Page,
    /// The slot that holds an earlier content.
    pub kept: Option<u32>,
    /// It was read because a neighbour was touched, and nobody has touched it since.
    pub ahead: bool,
}

pub struct Pool {
    places: Vec<Option<Parked>>,
    /// Numbers without end; the place is the number modulo the length.
    head: u64,
    tail: u64,
    pub parked: u64,
}

impl Pool {
    pub fn new(len: usize) -> Pool {
        Pool { places: vec![None; len], head: 0, tail: 0, parked: 0 }
    }

    pub fn len(&self) -> u64 {
        self.places.len() as u64
    }

    pub fn at(&self, place: u32) -> Option<Parked> {
        self.places[place as usize]
    }

    /// Free places from the head on, side by side.
    pub fn room(&self) -> u64 {
        let len = self.len();
        (len - (self.head - self.tail)).min(len - self.head % len)
    }

    /// Its place.
    pub fn push(&mut self, parked: Parked) -> u32 {
        let place = self.head % self.len();
        self.places[place as usize] = Some(parked);
        self.head += 1;
        self.parked += 1;
        place as u32
    }

    pub fn take(&mut self, place: u32) -> Option<Parked> {
        let parked = self.places[place as usize].take();
        self.parked -= u64::from(parked.is_some());
        parked
    }

    /// The oldest pages, at most so many, which leave the pool.
    pub fn oldest(&mut self, most: usize) -> Vec<Parked> {
        let mut list = Vec::new();
        while self.tail < self.head && list.len() < most {
            list.extend(self.take((self.tail % self.len()) as u32));
            self.tail += 1;
        }
        list
    }
}
