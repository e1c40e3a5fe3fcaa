-- What proves that a worker is dead: its process, in words that another process of its machine can check.

ALTER TABLE holdfast_workers ADD COLUMN process TEXT;
