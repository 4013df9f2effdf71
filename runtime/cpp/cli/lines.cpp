#include "lines.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tfexport::cli {

namespace {

constexpr std::size_t kChunkLines = 512;  // translated together at most
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

/// A stream of lines with the name that errors use.
class Lines {
public:
    Lines(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {}

    bool next(std::string& line) {
        line.clear();
        auto* buffer = stream_.rdbuf();
        int c = buffer->sbumpc();
        if (c == EOF) return false;
        for (; c != EOF && c != '\n'; c = buffer->sbumpc()) {
            line += static_cast<char>(c);
            if (line.size() > kMaxLineBytes) throw Error(place(taken_ + 1) + " is longer than 1 MiB; is this text?");
        }
        if (c == '\n' && !line.empty() && line.back() == '\r') line.pop_back();
        if (taken_++ == 0 && line.compare(0, 3, "\xEF\xBB\xBF") == 0) line.erase(0, 3);
        return true;
    }

    /// The lines that are there, at least one unless the stream has ended, so that a slow pipe gets its answers at
    /// once.
    std::vector<std::string> chunk() {
        std::vector<std::string> lines;
        std::string line;
        while (lines.size() < kChunkLines && (lines.empty() || stream_.rdbuf()->in_avail() > 0) && next(line)) {
            lines.push_back(line);
        }
        return lines;
    }

    std::string place(std::size_t number) const { return name_ + ", line " + std::to_string(number); }
    std::size_t taken() const { return taken_; }
    const std::string& name() const { return name_; }

private:
    std::istream& stream_;
    std::string name_;
    std::size_t taken_ = 0;
};

std::ifstream opened(const std::optional<std::string>& path) {
    std::ifstream file;
    if (!path) return file;
    file.open(std::filesystem::u8path(*path), std::ios::binary);
    if (!file || std::filesystem::is_directory(std::filesystem::u8path(*path))) throw Error(*path + ": cannot be read");
    return file;
}

std::vector<std::string> prefixes_for(Lines* lines, std::size_t count) {
    std::vector<std::string> prefixes(lines == nullptr ? 0 : count);
    for (std::string& prefix : prefixes) {
        if (!lines->next(prefix)) {
            throw Error(lines->name() + ": has " + std::to_string(lines->taken()) +
                        " lines, fewer than there are lines to translate");
        }
    }
    return prefixes;
}

std::string one_line(std::string text) {
    for (char& c : text) c = c == '\r' || c == '\n' ? ' ' : c;
    return text;
}

void write_json(std::ostream& out, std::size_t number, const Translation& translation) {
    using Ordered = nlohmann::ordered_json;
    Ordered hypotheses = Ordered::array();
    for (const Hypothesis& h : translation.hypotheses) {
        Ordered object;
        object["text"] = h.text;
        object["score"] = h.score;
        object["tokens"] = h.tokens;
        object["ids"] = h.ids;
        object["token_scores"] = h.token_scores;
        object["finish_reason"] = name_of(h.finish_reason);
        object["truncated"] = h.truncated();
        hypotheses.push_back(std::move(object));
    }
    Ordered line;
    line["line"] = number;
    line["hypotheses"] = std::move(hypotheses);
    out << line.dump() << '\n';
}

void write(std::ostream& out, std::size_t number, const Translation& translation, Format format, bool several) {
    if (format == Format::json) return write_json(out, number, translation);
    for (const Hypothesis& h : translation.hypotheses) {
        if (several) out << number << '\t';
        if (format == Format::scores) {
            char score[40];
            std::snprintf(score, sizeof score, "%.4f\t", h.score);
            out << score;
        }
        out << one_line(h.text) << '\n';
        if (!several) break;
    }
}

}  // namespace

void translate_lines(const Translator& translator, const Arguments& arguments, const TranslationOptions& options,
                     std::istream& in, std::ostream& out, std::ostream& warnings) {
    translator.translate({}, options);  // options are checked even where no line comes
    std::ifstream file = opened(arguments.input);
    std::ifstream prefix_file = opened(arguments.prefix);
    Lines lines(arguments.input ? file : in, arguments.input.value_or("input"));
    Lines prefixes(prefix_file, arguments.prefix.value_or(""));
    for (std::size_t done = 0;;) {
        const std::vector<std::string> chunk = lines.chunk();
        if (chunk.empty()) break;
        const auto begin = prefixes_for(arguments.prefix ? &prefixes : nullptr, chunk.size());
        std::vector<Translation> translations;
        try {
            translations = translator.translate(chunk, options, begin);
        } catch (const InputError& error) {
            throw Error(lines.place(done + error.index + 1) + " " + error.problem);
        }
        for (const Translation& translation : translations) {
            ++done;
            if (!translation.warning.empty())
                warnings << "tfexport-cli: " << lines.place(done) << " " << translation.warning << "\n";
            write(out, done, translation, arguments.format, options.n_best > 1);
        }
        out.flush();
        if (!out) throw Error(arguments.output.value_or("standard output") + " cannot be written", 1);
    }
    std::string more;
    if (arguments.prefix && prefixes.next(more)) {
        throw Error(prefixes.name() + ": has more than the lines that there are to translate");
    }
}

}  // namespace tfexport::cli
