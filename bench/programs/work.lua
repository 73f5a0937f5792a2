-- Trees, tables of strings and string joining; argument: rounds.
local rounds = tonumber(arg[1])

local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end

local function count(node)
  if not node[1] then return 1 end
  return 1 + count(node[1]) + count(node[2])
end

local seed = 1
local function random(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 8 % n
end

local kept = tree(12) -- lives through all rounds
local nodes, bytes, words = 0, 0, {}
for round = 1, rounds do
  for _ = 1, 8 do nodes = nodes + count(tree(10)) end
  local lines = {}
  for i = 1, 6000 do
    local word = string.format("w%x", random(3000))
    words[word] = (words[word] or 0) + 1
    lines[#lines + 1] = word .. ":" .. i .. string.rep("-", random(40))
  end
  local text = table.concat(lines, "\n")
  text = text:gsub("%-+", function(dashes) return "<" .. #dashes .. ">" end)
  for name, number in text:gmatch("(w%x+):(%d+)") do bytes = bytes + #name + number % 7 end
  if round % 5 == 0 then -- a table that grows to some size and goes
    local list = {}
    for i = 1, 40000 do list[i] = { i, round } end
    bytes = bytes + #list
  end
end

local sorted = {}
for word, times in pairs(words) do sorted[#sorted + 1] = word .. "=" .. times end
table.sort(sorted)
local sum = 0
for i, entry in ipairs(sorted) do
  for j = 1, #entry do sum = (sum * 31 + entry:byte(j) + i) % 4294967296 end
end
print(nodes, bytes, #sorted, sum, count(kept))
