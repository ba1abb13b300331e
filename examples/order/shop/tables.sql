CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.stock (
  sku       text PRIMARY KEY,
  delivered bigint NOT NULL,                     -- to the shop, ever
  on_hand   bigint NOT NULL CHECK (on_hand >= 0) -- not held, not sold
);
INSERT INTO shop.stock
SELECT 'sku-' || lpad(n::text, 2, '0'), 10000, 10000 FROM generate_series(1, 24) n
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS shop.orders (
  id        text PRIMARY KEY,
  customer  text    NOT NULL,
  sku       text    NOT NULL,
  quantity  integer NOT NULL CHECK (quantity > 0),
  cents     bigint  NOT NULL CHECK (cents > 0),
  charge_id text UNIQUE,                         -- of the provider, once the order is paid
  looked_up boolean NOT NULL DEFAULT false       -- its answer never came: found by asking
);

CREATE TABLE IF NOT EXISTS shop.holds (
  order_id text PRIMARY KEY REFERENCES shop.orders,
  sku      text    NOT NULL,
  quantity integer NOT NULL
);
