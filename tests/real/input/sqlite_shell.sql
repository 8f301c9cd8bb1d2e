create table t(a integer, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
  insert into t select i, printf('%08d text', i * 7919 % 100003) from n;
.shell echo shell says $((40 + 2))
.once '|sha256sum'
select * from t order by b;
.shell exit 3
select count(*), sum(a), min(b), max(b) from t;
.output '|sort | tail -n 2'
select b from t where a < 1000;
.output
pragma integrity_check;
