package normalize

// ValuesMatter lets the external tests of this package know which lines the rules leave alone.
var ValuesMatter = valuesMatter
